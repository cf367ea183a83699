"""Words and inflection of the synthetic language pair: tables, and the functions that read them."""

import re
from typing import NamedTuple

# Tables as text: entries are separated by commas, fields by spaces, words inside a field by "_".

# gender, English singular and plural, German singular and plural; places: English and German preposition
_NOUNS = {
    "person": """
        m man men Mann Männer, f woman women Frau Frauen, n child children Kind Kinder, n girl girls Mädchen Mädchen,
        m teacher teachers Lehrer Lehrer, m doctor doctors Arzt Ärzte, m friend friends Freund Freunde,
        f mother mothers Mutter Mütter, m father fathers Vater Väter, f sister sisters Schwester Schwestern,
        f daughter daughters Tochter Töchter, m son sons Sohn Söhne, f aunt aunts Tante Tanten,
        m baker bakers Bäcker Bäcker
    """,
    "animal": """
        m dog dogs Hund Hunde, f cat cats Katze Katzen, m bird birds Vogel Vögel, n horse horses Pferd Pferde
    """,
    "text": """
        n book books Buch Bücher, m letter letters Brief Briefe, f newspaper newspapers Zeitung Zeitungen,
        n poem poems Gedicht Gedichte, f story stories Geschichte Geschichten
    """,
    "food": """
        m cake cakes Kuchen Kuchen, m apple apples Apfel Äpfel, n egg eggs Ei Eier
    """,
    "thing": """
        m table tables Tisch Tische, m chair chairs Stuhl Stühle, n picture pictures Bild Bilder,
        f cup cups Tasse Tassen, f flower flowers Blume Blumen, m hat hats Hut Hüte, m key keys Schlüssel Schlüssel
    """,
    "machine": """
        n car cars Auto Autos, n bicycle bicycles Fahrrad Fahrräder, f lamp lamps Lampe Lampen,
        f clock clocks Uhr Uhren
    """,
    "opening": """
        f door doors Tür Türen, n window windows Fenster Fenster, f box boxes Kiste Kisten, f bag bags Tasche Taschen,
        m suitcase suitcases Koffer Koffer
    """,
    "place": """
        m garden gardens Garten Gärten in in, f kitchen kitchens Küche Küchen in in, m park parks Park Parks in in,
        n room rooms Zimmer Zimmer in in, f church churches Kirche Kirchen in in, n museum museums Museum Museen in in,
        f school schools Schule Schulen at in, m market markets Markt Märkte at auf,
        m beach beaches Strand Strände on an, m station stations Bahnhof Bahnhöfe at an,
        f bridge bridges Brücke Brücken on auf, n hotel hotels Hotel Hotels in in
    """,
}
NAMES = ("Anna", "Peter", "Maria", "Paul", "Julia", "Martin")
_ADJECTIVES = {  # English, German stem, German predicative form where it differs
    "person": """
        old alt, young jung, small klein, tall groß, tired müd müde, happy glücklich
    """,
    "thing": """
        old alt, new neu, big groß, small klein, red rot, green grün, black schwarz, beautiful schön,
        expensive teur teuer
    """,
}
# by number: English, German stem, inflection; "-" is no word
_DETERMINERS = {
    "singular": """
        the der definite, this dies der, my mein ein, his sein ein, her ihr ein, a ein ein, a ein ein,
        the der definite, the der definite, every jed der
    """,
    "plural": """
        the der definite, these dies der, my mein ein, his sein ein, her ihr ein, - - none, - - none, the der definite,
        two zwei none, three drei none, many viel strong, some einig strong, all all der
    """,
}
# how many of each number, from the first, may stand in a negated clause beside "nicht"; the two after them give "kein"
PLAIN_DETERMINERS = 5
_PRONOUNS = {  # English subject and object, German nominative, accusative, dative; person (index of a verb form)
    "speaker": "I me ich mich mir 0, we us wir uns uns 2",
    "person": "he him er ihn ihm 1, she her sie sie ihr 1, they them sie sie ihnen 2",
    "thing": "it it es es - 1, they them sie sie - 2",
}
# (frame, German auxiliary, kinds of object): English base, past and participle; German infinitive, third person
# singular and participle. "_" joins a preposition, "+" an adverb, which moves behind a pronoun; "|" marks a
# separable prefix.
_VERBS = {
    ("acc", "haben", "text"): """
        read read read lesen liest gelesen, write wrote written schreiben schreibt geschrieben,
        read+aloud read+aloud read+aloud vor|lesen liest vorgelesen
    """,
    ("acc", "haben", "food"): "eat ate eaten essen isst gegessen, cook cooked cooked kochen kocht gekocht",
    ("acc", "haben", "text food thing machine"): """
        buy bought bought kaufen kauft gekauft, sell sold sold verkaufen verkauft verkauft,
        look_for looked_for looked_for suchen sucht gesucht, find found found finden findet gefunden,
        bring+along brought+along brought+along mit|bringen bringt mitgebracht
    """,
    ("acc", "haben", "machine"): """
        repair repaired repaired reparieren repariert repariert,
        turn+on turned+on turned+on ein|schalten schaltet eingeschaltet,
        turn+off turned+off turned+off aus|schalten schaltet ausgeschaltet
    """,
    ("acc", "haben", "opening"): """
        open opened opened öffnen öffnet geöffnet, close closed closed zu|machen macht zugemacht
    """,
    ("acc", "haben", "thing machine opening place"): """
        clean cleaned cleaned putzen putzt geputzt
    """,
    ("acc", "haben", "person animal"): """
        see saw seen sehen sieht gesehen, love loved loved lieben liebt geliebt, hear heard heard hören hört gehört
    """,
    ("acc", "haben", "person"): """
        visit visited visited besuchen besucht besucht, call+up called+up called+up an|rufen ruft angerufen,
        invite invited invited ein|laden lädt eingeladen, pick+up picked+up picked+up ab|holen holt abgeholt
    """,
    ("dat", "haben", "person"): """
        help helped helped helfen hilft geholfen, thank thanked thanked danken dankt gedankt,
        answer answered answered antworten antwortet geantwortet,
        listen_to listened_to listened_to zu|hören hört zugehört
    """,
    ("dat", "sein", "person animal"): "follow followed followed folgen folgt gefolgt",
    ("ditransitive", "haben", "text food thing"): """
        give gave given geben gibt gegeben, send sent sent schicken schickt geschickt,
        bring brought brought bringen bringt gebracht
    """,
    ("intransitive", "haben", ""): """
        sleep slept slept schlafen schläft geschlafen, work worked worked arbeiten arbeitet gearbeitet,
        laugh laughed laughed lachen lacht gelacht, dance danced danced tanzen tanzt getanzt,
        play played played spielen spielt gespielt
    """,
    ("intransitive", "sein", ""): """
        get+up got+up got+up auf|stehen steht aufgestanden,
        fall+asleep fell+asleep fallen+asleep ein|schlafen schläft eingeschlafen
    """,
    ("motion", "sein", ""): """
        go went gone gehen geht gegangen, run ran run laufen läuft gelaufen, drive drove driven fahren fährt gefahren,
        come came come kommen kommt gekommen, return returned returned zurück|kehren kehrt zurückgekehrt
    """,
}
FRAME_WEIGHTS = {"acc": 40, "dat": 12, "ditransitive": 14, "intransitive": 12, "motion": 10, "copula": 12}
_FINITE = {  # first and third person singular, plural
    "be": "am is are",
    "was": "was was were",
    "have": "have has have",
    "do": "do does do",
    "want": "want wants want",
    "sein": "bin ist sind",
    "war": "war war waren",
    "haben": "habe hat haben",
    "werden": "werde wird werden",
    "können": "kann kann können",
    "müssen": "muss muss müssen",
    "sollen": "sollte sollte sollten",
    "dürfen": "darf darf dürfen",
    "wollen": "will will wollen",
}
MODALS = {"can": "können", "must": "müssen", "should": "sollen", "may": "dürfen", "want": "wollen"}
_MATRIX_VERBS = "know wissen weiß weiß, say sagen sage sagt, believe glauben glaube glaubt, hope hoffen hoffe hofft"
_CONJUNCTIONS = "because weil, if wenn, although obwohl, while während, as_soon_as sobald"
# English, German, for each English word the digits of the German words it stands for, tenses
_ADVERBS = """
    today heute 0 present/past/perfect/future/modal, now jetzt 0 present/modal, yesterday gestern 0 past,
    soon bald 0 future, tomorrow morgen 0 future/modal, often oft 0 present/past,
    every_day jeden_Tag 0/1 present/modal/past, last_week letzte_Woche 0/1 past,
    next_week nächste_Woche 0/1 future/modal, this_morning heute_Morgen 0/1 past,
    in_the_evening am_Abend 0/0/1 present/past/future, on_Sunday am_Sonntag 0/1 past/future/modal,
    tonight heute_Abend 01 future/modal, at_night nachts 0/0 present/past
"""
_NEAR = "behind hinter, beside neben, in_front_of vor"  # with a place in the dative
_COMPANY = "with mit dat, for für acc, without ohne acc"
PARTICLES = ("ja", "doch", "wohl")
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}
# masculine, feminine, neuter, plural
DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den", "gen": "des der des der"}
DER_ENDINGS = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"}


class Noun(NamedTuple):
    kind: str
    gender: str  # m, f, n
    singular: str
    plural: str
    german_singular: str
    german_plural: str
    preposition: str = ""
    german_preposition: str = ""


class Determiner(NamedTuple):
    english: str
    stem: str
    inflection: str  # definite, der, ein, strong, none


class Verb(NamedTuple):
    kinds: tuple[str, ...]
    auxiliary: str
    base: str
    past: str
    participle: str
    german_infinitive: str
    german_third: str
    german_participle: str


class Adverb(NamedTuple):
    english: list[str]
    german: list[str]
    links: list[list[int]]  # for each English word
    tenses: list[str]


def _rows(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",")]


def _adverb(english: str, german: str, links: str, tenses: str) -> Adverb:
    indices = [[int(digit) for digit in word] for word in links.split("/")]
    return Adverb(english.split("_"), german.split("_"), indices, tenses.split("/"))


NOUNS = {kind: [Noun(kind, *row) for row in _rows(table)] for kind, table in _NOUNS.items()}
ADJECTIVES = {kind: _rows(table) for kind, table in _ADJECTIVES.items()}
DETERMINERS = {number: [Determiner(*row) for row in _rows(table)] for number, table in _DETERMINERS.items()}
THE, A, KEIN = Determiner("the", "der", "definite"), Determiner("a", "ein", "ein"), Determiner("", "kein", "ein")
PRONOUNS = {kind: _rows(table) for kind, table in _PRONOUNS.items()}
VERBS: dict[str, list[Verb]] = {}
for (_frame, _auxiliary, _kinds), _table in _VERBS.items():
    VERBS.setdefault(_frame, []).extend(Verb(tuple(_kinds.split()), _auxiliary, *row) for row in _rows(_table))
FINITE = {lemma: forms.split() for lemma, forms in _FINITE.items()}
MATRIX_VERBS, CONJUNCTIONS, NEAR, COMPANY = map(_rows, (_MATRIX_VERBS, _CONJUNCTIONS, _NEAR, _COMPANY))
ADVERBS: dict[str, list[Adverb]] = {}
for _row in _rows(_ADVERBS):
    for _tense in _adverb(*_row).tenses:
        ADVERBS.setdefault(_tense, []).append(_adverb(*_row))


# Inflection. A gender is m, f, n, or p for any plural; a person is an index into the forms of `FINITE`.


def _pick(forms: str, gender: str) -> str:
    return forms.split()["mfnp".index(gender)]


def determiner_form(determiner: Determiner, case: str, gender: str) -> str:
    if determiner.inflection == "none":
        return determiner.stem
    if determiner.inflection == "definite":
        return _pick(DEFINITE[case], gender)
    if determiner.inflection == "ein" and (case, gender) in {("nom", "m"), ("nom", "n"), ("acc", "n")}:
        return determiner.stem
    return determiner.stem + _pick(DER_ENDINGS[case], gender)


def adjective_form(stem: str, determiner: Determiner, case: str, gender: str) -> str:
    """Strong after no word or one without ending, mixed after "ein", weak after "der"."""
    if determiner.inflection in {"none", "strong"}:
        return stem + _pick(DER_ENDINGS[case], gender)
    if gender == "p" or not (case == "nom" or (case == "acc" and gender != "m")):
        return stem + "en"
    return stem + (_pick(DER_ENDINGS["nom"], gender) if determiner.inflection == "ein" else "e")


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")
    if case != "gen" or noun.gender == "f":
        return noun.german_singular
    syllables = re.findall("[aeiouäöü]+", noun.german_singular.lower())
    return noun.german_singular + ("es" if len(syllables) == 1 else "s")


def verb_form(infinitive: str, third_person: str, person: int) -> str:
    """German present tense, without the prefix of a separable verb."""
    stem = infinitive.split("|")[-1]
    return (stem.removesuffix("n"), third_person, stem)[person]


def english_verb_form(base: str, person: int) -> str:
    """English present tense."""
    if person != 1:
        return base
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")
