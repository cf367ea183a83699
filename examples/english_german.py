"""Generate a synthetic language pair: real English and German sentences with exact word alignments.

A synchronous grammar builds both sides of a sentence at once. Every word carries the numbers of its meanings ("the",
"old" and "man" have one each; German "im" has two, the meanings of "in" and "the"). Two words are linked if and only
if they share a meaning. A word without a counterpart has no link: English "do", "of", "to" and "'s"; German particles
("ja", "doch"), some commas, and the auxiliary of a perfect where English has the past tense.

The pair is hard to align for the reasons that make German hard: agreement in gender, case and number; the verb second
in main clauses, first in questions, last in subordinate clauses; participles and infinitives at the end; separable
verbs ("ruft ... an"); fronted adverbs with the subject after the verb; "nicht" late and "kein" fused with the article.
Text is tokenised (spaces between words and punctuation) and capitalised as usual.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import english_german_words as lexicon
from english_german_words import DETERMINERS, FINITE, KEIN, NOUNS, THE, A, Determiner, Noun, Verb

MIN_WORDS, MAX_WORDS = 3, 16
CASES = ("nom", "acc", "dat")
TENSES = {"present": 30, "past": 25, "perfect": 12, "future": 11, "modal": 22}  # with weights

Word = tuple[str, tuple[int, ...]]  # text and meanings


class AlignedPair(NamedTuple):
    """Sentence pair: English words, German words, and links (index of source word, index of target word)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: frozenset[tuple[int, int]]


class SyntheticSplit(NamedTuple):
    train: list[AlignedPair]
    valid: list[AlignedPair]
    test: list[AlignedPair]


def generate_pairs(n: int, seed: int = 0) -> list[AlignedPair]:
    """Generate `n` pairs of 3 to 16 words per side. A seed fixes the pairs; a larger `n` appends more."""
    return list(islice(_sentences(seed), n))


def write_pairs(pairs: Iterable[AlignedPair], source: str | Path, target: str | Path) -> None:
    """Write both sides of sentence pairs, one sentence per line, as input of the commands."""
    with open(source, "w", encoding="utf-8") as sources, open(target, "w", encoding="utf-8") as targets:
        for pair in pairs:
            sources.write(f"{' '.join(pair.source)}\n")
            targets.write(f"{' '.join(pair.target)}\n")


def generate_split(train: int, valid: int, test: int, seed: int = 0) -> SyntheticSplit:
    """Generate three sets in which no English or German sentence appears twice."""
    sentences: set[tuple[str, ...]] = set()

    def is_new(pair: AlignedPair) -> bool:
        if pair.source in sentences or pair.target in sentences:
            return False
        sentences.update((pair.source, pair.target))
        return True

    pairs = list(islice(filter(is_new, _sentences(seed)), train + valid + test))
    return SyntheticSplit(pairs[:train], pairs[train : train + valid], pairs[train + valid :])


class _Phrase(NamedTuple):
    """Constituent in both languages. `person` indexes verb forms; `negated` means that its "kein" replaces "nicht"."""

    english: list[Word]
    german: list[Word]
    person: int = 1
    pronoun: bool = False
    negated: bool = False


_NOTHING = _Phrase([], [])


class _Predicate(NamedTuple):
    """Verb group. English: `auxiliaries` (with "not"), `main`, and an `adverb`, which follows a pronoun object.
    German: `finite` verb, words at the `end` of a main clause, and the `last` words of a subordinate clause.
    """

    auxiliaries: list[Word]
    main: list[Word]
    adverb: list[Word]
    finite: Word
    end: list[Word]
    last: list[Word]


class _Objects(NamedTuple):
    """Objects of a verb. German pronouns and nouns are separate; `pronoun` is about the first English object."""

    english: list[Word]
    pronouns: list[Word]
    nouns: list[Word]
    pronoun: bool = False
    negated: bool = False


class _Parts(NamedTuple):
    """Constituents of a clause before word order."""

    subject: _Phrase
    predicate: _Predicate
    objects: _Objects
    place: _Phrase
    tense: str


class _Grammar:
    """Grammar that draws constituents. Every method that builds words assigns new numbers to their meanings."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.last_meaning = 0

    def meaning(self) -> tuple[int, ...]:
        """Return a single new meaning."""
        self.last_meaning += 1
        return (self.last_meaning,)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def sentence(self) -> _Phrase:
        """Draw a main clause, a question, or a main and a subordinate clause in either order, with punctuation."""
        shape = self.rng.choices(("main", "question", "before", "after", "that"), (55, 10, 10, 10, 15))[0]
        if shape in {"main", "question"}:
            english, german, *_ = self.clause("second" if shape == "main" else "first")
        elif shape == "that":
            english, german = self.that_clause()
        else:
            english, german = self.two_clauses(first=shape == "before")
        mark: list[Word] = [("?" if shape == "question" else ".", self.meaning())]
        return _Phrase(_capitalised(english) + mark, _capitalised(german) + mark)

    def that_clause(self) -> tuple[list[Word], list[Word]]:
        """Draw a clause with a verb of speech or thought, and its "that" clause."""
        join = self.meaning()
        base, infinitive, first, third = self.rng.choice(lexicon.MATRIX_VERBS)
        subject, verb = self.noun_phrase("nom", ("person",), ("speaker", "person")), self.meaning()
        content = self.clause("last")
        conjunction: list[Word] = [("that", join)] if self.chance(0.7) else []
        form = (first, third, infinitive)[subject.person]
        english_verb: Word = (lexicon.english_verb_form(base, subject.person), verb)
        german = [*subject.german, (form, verb), (",", ()), ("dass", join), *content.german]
        return [*subject.english, english_verb, *conjunction, *content.english], german

    def two_clauses(self, first: bool) -> tuple[list[Word], list[Word]]:
        """Draw a main and a subordinate clause with a conjunction; the subordinate clause is `first` or last."""
        join = self.meaning()
        word, german_word = self.rng.choice(lexicon.CONJUNCTIONS)
        content = self.clause("last")
        english = [*((text, join) for text in word.split("_")), *content.english]
        german: list[Word] = [(german_word, join), *content.german]
        if not first:
            main = self.clause("second")
            return [*main.english, *english], [*main.german, (",", ()), *german]
        comma: Word = (",", self.meaning())
        # A fronted clause takes the first position of the German sentence, so the verb comes next.
        main = self.clause("first", question=False)
        return [*english, comma, *main.english], [*german, comma, *main.german]

    def clause(self, order: str, question: bool = True) -> _Phrase:
        """Draw a clause with subject, verb group, objects and adverbials.

        Args:
            order: position of the German finite verb, "first", "second" or "last".
            question: True if "first" means a question, False if the clause follows a subordinate one. Default: True.
        """
        question = question and order == "first"
        frame = self.rng.choices(list(lexicon.FRAME_WEIGHTS), list(lexicon.FRAME_WEIGHTS.values()))[0]
        negation = self.meaning() if not question and self.chance(0.18) else ()
        parts = self.copula_parts(negation) if frame == "copula" else self.verb_parts(frame, negation, question)
        time = self.time(parts.tense) if self.chance(0.4) else _NOTHING
        english = self.english_order(parts, time, question, may_begin=order != "last")
        german = self.german_order(parts, time, order, question, negation, may_front=frame != "motion")
        return _Phrase(english, german)

    def copula_parts(self, negation: tuple[int, ...]) -> _Parts:
        """Draw a subject, the copula and an adjective."""
        kind = "person" if self.chance(0.5) else "thing"
        if kind == "person":
            subject = self.noun_phrase("nom", ("person",), ("speaker", "person"), plain=bool(negation))
        else:
            kinds = ("thing", "machine", "opening", "place")
            subject = self.noun_phrase("nom", kinds, ("thing",), plain=bool(negation))
        tense = self.rng.choice(("present", "present", "past"))
        predicate = self.copula(kind, tense, subject.person, negation)
        return _Parts(subject, predicate, _Objects([], [], []), _NOTHING, tense)

    def verb_parts(self, frame: str, negation: tuple[int, ...], question: bool) -> _Parts:
        """Draw a subject, a verb of the frame, its objects, and a place."""
        kinds = ("person", "person", "animal") if frame in {"intransitive", "motion"} else ("person",)
        subject = self.noun_phrase("nom", kinds, ("speaker", "person"), plain=bool(negation))
        # The same subject and object would need a reflexive pronoun.
        others = ("person",) if subject.german[0][0] in {"ich", "wir"} else ("speaker", "person")
        verb = self.rng.choice(lexicon.VERBS[frame])
        tense = self.rng.choices(list(TENSES), list(TENSES.values()))[0]
        predicate = self.predicate(verb, tense, subject.person, negation, question)
        objects = self.objects(frame, verb, others, negation)
        place = _NOTHING
        if frame == "motion":
            place = self.place(direction=True)
        elif self.chance(0.3):
            place = self.adjunct()
        return _Parts(subject, predicate, objects, place, tense)

    def english_order(self, parts: _Parts, time: _Phrase, question: bool, may_begin: bool) -> list[Word]:
        """Order the words of an English clause; with `may_begin`, the time may come first."""
        predicate, objects = parts.predicate, parts.objects.english
        verb_and_objects = [*predicate.adverb, *objects]
        if parts.objects.pronoun:
            verb_and_objects = [objects[0], *predicate.adverb, *objects[1:]]
        english = [*predicate.main, *verb_and_objects, *parts.place.english]
        if question:
            return [*predicate.auxiliaries, *parts.subject.english, *english, *time.english]
        if may_begin and self.chance(0.35):
            return [*time.english, *parts.subject.english, *predicate.auxiliaries, *english]
        return [*parts.subject.english, *predicate.auxiliaries, *english, *time.english]

    def german_order(
        self, parts: _Parts, time: _Phrase, order: str, question: bool, negation: tuple[int, ...], may_front: bool
    ) -> list[Word]:
        """Order the words of a German clause; with `may_front`, the place may come first."""
        predicate, objects = parts.predicate, parts.objects
        front, when, where = parts.subject.german, time.german, parts.place.german
        inverted = front if order == "first" else []
        if order == "second" and self.chance(0.45):
            if when and (self.chance(0.6) or not where):
                front, when, inverted = when, [], front
            elif where and may_front:
                front, where, inverted = where, [], front
        particle: list[Word] = []
        if not question and self.chance(0.1):
            particle = [(self.rng.choice(lexicon.PARTICLES), ())]
        nicht: list[Word] = [("nicht", negation)] if negation and not objects.negated else []
        german = [*inverted, *objects.pronouns, *particle, *when, *objects.nouns, *nicht, *where]
        if order == "first":
            return [predicate.finite, *german, *predicate.end]
        if order == "second":
            return [*front, predicate.finite, *german, *predicate.end]
        return [*front, *german, *predicate.last]

    def objects(self, frame: str, verb: Verb, pronouns: tuple[str, ...], negation: tuple[int, ...]) -> _Objects:
        """Draw the objects. German has pronouns first (accusative before dative), then nouns (dative first)."""
        recipient = patient = None
        plain = bool(negation)
        if frame in {"dat", "ditransitive"}:
            kinds = ("person",) if frame == "ditransitive" else verb.kinds
            recipient = self.noun_phrase("dat", kinds, pronouns, plain)
        if frame in {"acc", "ditransitive"}:
            animate = "person" in verb.kinds
            patient = self.noun_phrase("acc", verb.kinds, pronouns if animate else ("thing",), plain, negation)
        phrases = [phrase for phrase in (recipient, patient) if phrase]
        english = [word for phrase in phrases for word in phrase.english]
        if recipient and patient and (patient.pronoun or self.chance(0.4)):
            english = [*patient.english, ("to", ()), *recipient.english]
        return _Objects(
            english,
            [word for phrase in reversed(phrases) if phrase.pronoun for word in phrase.german],
            [word for phrase in phrases if not phrase.pronoun for word in phrase.german],
            pronoun=len(phrases) == 1 and phrases[0].pronoun,
            negated=bool(patient and patient.negated),
        )

    def predicate(self, verb: Verb, tense: str, person: int, negation: tuple[int, ...], question: bool) -> _Predicate:
        """Build the verb group in a tense."""
        content, helper = self.meaning(), self.meaning()
        modal = self.rng.choice([word for word in lexicon.MODALS if not (negation and word == "must")])
        english = _english_group(
            verb, modal if tense == "modal" else tense, person, (content, helper), negation, question
        )
        if tense == "present":
            prefix = verb.german_infinitive.split("|")[:-1]
            form = lexicon.verb_form(verb.german_infinitive, verb.german_third, person)
            end: list[Word] = [(text, content) for text in prefix]
            return _Predicate(*english, (form, content), end, [("".join((*prefix, form)), content)])
        infinitive = tense in {"future", "modal"}
        lemma = {"future": "werden", "modal": lexicon.MODALS[modal]}.get(tense, verb.auxiliary)
        nonfinite = verb.german_infinitive.replace("|", "") if infinitive else verb.german_participle
        finite: Word = (FINITE[lemma][person], helper)
        return _Predicate(*english, finite, [(nonfinite, content)], [(nonfinite, content), finite])

    def copula(self, kind: str, tense: str, person: int, negation: tuple[int, ...]) -> _Predicate:
        """Build the copula and an adjective: "is old", "ist alt"."""
        english, *german = self.rng.choice(lexicon.ADJECTIVES[kind])
        content, quality = self.meaning(), self.meaning()
        be, sein = ("was", "war") if tense == "past" else ("be", "sein")
        auxiliaries: list[Word] = [(FINITE[be][person], content)]
        if negation:
            auxiliaries.append(("not", negation))
        finite: Word = (FINITE[sein][person], content)
        adjective: Word = (german[-1], quality)
        return _Predicate(auxiliaries, [(english, quality)], [], finite, [adjective], [adjective, finite])

    def noun_phrase(
        self,
        case: str,
        kinds: tuple[str, ...],
        pronouns: tuple[str, ...],
        plain: bool = False,
        negation: tuple[int, ...] = (),
    ) -> _Phrase:
        """Draw a pronoun, a name, or a noun with its determiner, adjective and owner.

        Args:
            case: German case.
            kinds: keys of `NOUNS`.
            pronouns: groups of `PRONOUNS`.
            plain: True for determiners of a negated clause only. Default: False.
            negation: meaning of "not", which an indefinite phrase expresses as "kein". Default: none.
        """
        kind = self.rng.choice(kinds)
        if self.chance(0.25):
            row = self.rng.choice([row for group in pronouns for row in lexicon.PRONOUNS[group]])
            meanings = self.meaning()
            german = (row[2 + CASES.index(case)], meanings)
            return _Phrase([(row[0 if case == "nom" else 1], meanings)], [german], int(row[5]), pronoun=True)
        if kind == "person" and self.chance(0.12):
            name = (self.rng.choice(lexicon.PERSON_NAMES), self.meaning())
            return _Phrase([name], [name])
        plural = self.chance(0.25)
        determiners = DETERMINERS["plural" if plural else "singular"]
        if plain:
            determiners = determiners[: lexicon.PLAIN_DETERMINERS + (2 if negation else 0)]
        return self.noun_group(self.rng.choice(NOUNS[kind]), case, self.rng.choice(determiners), plural, negation)

    def noun_group(
        self, noun: Noun, case: str, determiner: Determiner, plural: bool = False, negation: tuple[int, ...] = ()
    ) -> _Phrase:
        """Build determiner, adjective, noun and owner: "the old book of the man" or "the man 's old book"."""
        gender, person = ("p", 2) if plural else (noun.gender, 1)
        article, quality, head = (self.meaning() for _ in range(3))
        negated = bool(negation) and determiner.english in {"a", "-"}
        german_determiner = KEIN if negated else determiner
        english: list[Word] = [(noun.plural if plural else noun.singular, head)]
        german: list[Word] = [(lexicon.noun_form(noun, case, plural), head)]
        owned = determiner == THE and case != "gen" and self.chance(0.12)
        if owned and self.chance(0.25):
            meaning, name = self.meaning(), self.rng.choice(lexicon.PERSON_NAMES)
            return _Phrase([(name, meaning), ("'s", meaning), *english], [(name + "s", meaning), *german], person)
        if self.chance(0.3):
            row = self.rng.choice(lexicon.ADJECTIVES["person" if noun.kind in {"person", "animal"} else "thing"])
            english.insert(0, (row[0], quality))
            german.insert(0, (lexicon.adjective_form(row[1], german_determiner, case, gender), quality))
        if german_determiner.stem != "-":
            text = lexicon.determiner_form(german_determiner, case, gender)
            german.insert(0, (text, negation + article if negated else article))
        owner = self.noun_group(self.rng.choice(NOUNS["person"]), "gen", THE) if owned else _NOTHING
        german += owner.german
        if owned and self.chance(0.5):
            return _Phrase([*owner.english, ("'s", ()), *english], german, person)
        if determiner.english != "-":
            before_vowel = determiner.english == "a" and english[0][0][0] in "aeiou"
            english.insert(0, ("an" if before_vowel else determiner.english, article))
        if owned:
            english += [("of", ()), *owner.english]
        return _Phrase(english, german, person, negated=negated)

    def prepositional(self, english: str, german: str, phrase: _Phrase) -> _Phrase:
        """Put a preposition before a noun phrase; German contracts "in dem" to "im"."""
        meanings, words = self.meaning(), phrase.german
        if contraction := lexicon.CONTRACTIONS.get((german, words[0][0])):
            words = [(contraction, meanings + words[0][1]), *words[1:]]
        else:
            words = [(german, meanings), *words]
        return _Phrase([*((text, meanings) for text in english.split("_")), *phrase.english], words)

    def place(self, direction: bool) -> _Phrase:
        """Draw a place ("im Park", dative) or a direction ("in den Park", accusative; "zur Brücke")."""
        noun = self.rng.choice(NOUNS["place"])
        determiner = self.rng.choice((THE, THE, THE, A, *DETERMINERS["singular"][1:3]))
        if not direction:
            english, german = noun.preposition, noun.german_preposition
            if self.chance(0.2):
                english, german = self.rng.choice(lexicon.NEAR)
            return self.prepositional(english, german, self.noun_group(noun, "dat", determiner))
        if noun.german_preposition == "in":
            return self.prepositional("to", "in", self.noun_group(noun, "acc", determiner))
        return self.prepositional("to", "zu", self.noun_group(noun, "dat", determiner))

    def adjunct(self) -> _Phrase:
        """Draw a place or company."""
        if self.chance(0.65):
            return self.place(direction=False)
        english, german, case = self.rng.choice(lexicon.COMPANY)
        return self.prepositional(english, german, self.noun_phrase(case, ("person",), ("person",)))

    def time(self, tense: str) -> _Phrase:
        """Draw an adverb of time for the tense; its words are linked as in the table."""
        adverb = self.rng.choice(lexicon.ADVERBS[tense])
        meanings = [[meaning for _ in indices for meaning in self.meaning()] for indices in adverb.links]
        german = [
            (text, tuple(own[row.index(j)] for own, row in zip(meanings, adverb.links, strict=True) if j in row))
            for j, text in enumerate(adverb.german)
        ]
        return _Phrase([(text, tuple(own)) for text, own in zip(adverb.english, meanings, strict=True)], german)


def _english_group(
    verb: Verb,
    tense: str,
    person: int,
    meanings: tuple[tuple[int, ...], tuple[int, ...]],
    negation: tuple[int, ...],
    question: bool,
) -> tuple[list[Word], list[Word], list[Word]]:
    """Return auxiliaries, verb and adverb, with "do" in a question or negation without another auxiliary.

    Args:
        verb: verb.
        tense: one of `TENSES`, or a modal verb.
        person: index of a verb form.
        meanings: meanings of the verb and of the tense.
        negation: meaning of "not", or empty.
        question: True for a question.
    """
    content, helper = meanings
    needs_auxiliary = question or bool(negation)
    auxiliaries: list[Word] = []
    before: list[Word] = []
    lexical = verb.participle if tense == "perfect" else verb.base
    if tense == "past":
        auxiliaries = [("did", helper)] if needs_auxiliary else []
        lexical = verb.base if needs_auxiliary else verb.past
    elif tense in {"present", "want"}:
        auxiliaries = [(FINITE["do"][person], ())] if needs_auxiliary else []
        if tense == "want":
            before = [("want" if needs_auxiliary else FINITE["want"][person], helper), ("to", ())]
    else:
        auxiliaries = [({"perfect": FINITE["have"][person], "future": "will"}.get(tense, tense), helper)]
    head, *adverb = lexical.split("+")
    head, *preposition = head.split("_")
    if tense == "present" and not needs_auxiliary:
        head = lexicon.english_verb_form(head, person)
    if negation and auxiliaries[0][0] == "can":
        auxiliaries = [("cannot", helper + negation)]
    elif negation:
        auxiliaries.append(("not", negation))
    main = [*before, *((text, content) for text in (head, *preposition))]
    return auxiliaries, main, [(text, content) for text in adverb]


def _capitalised(words: list[Word]) -> list[Word]:
    (text, meanings), *rest = words
    return [(text[0].upper() + text[1:], meanings), *rest]


def _aligned(sentence: _Phrase) -> AlignedPair:
    """Return the pair with links between words that share a meaning."""
    expressed = defaultdict(list)
    for j, (_, meanings) in enumerate(sentence.german):
        for meaning in meanings:
            expressed[meaning].append(j)
    links = {(i, j) for i, (_, meanings) in enumerate(sentence.english) for m in meanings for j in expressed[m]}
    source, target = (tuple(text for text, _ in words) for words in (sentence.english, sentence.german))
    return AlignedPair(source, target, frozenset(links))


def _sentences(seed: int) -> Iterator[AlignedPair]:
    """Yield sentences of 3 to 16 words per side, without end."""
    grammar = _Grammar(seed)
    while True:
        sentence = grammar.sentence()
        if all(MIN_WORDS <= len(words) <= MAX_WORDS for words in (sentence.english, sentence.german)):
            yield _aligned(sentence)
