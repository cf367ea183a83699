"""The best monotone path of tokens and pauses through the frames of an utterance."""

import numpy as np

_NEVER = -1e30


def monotone_path(tokens: np.ndarray, pause: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the first frame of each token and the one after its last, (T, 2), on the best path.

    Each token has one frame or more, in the order of the text. Between words, and at both ends, frames may be a pause.
    The path has the largest sum of scores: `max over paths of the sum over frames s of tokens[t(s), s] or pause[s]`.

    Args:
        tokens: scores of the tokens, (T, S).
        pause: scores of a pause, (S,).
        first: True for the first token of a word, (T,).

    Raises:
        ValueError: there are more tokens than frames.
    """
    count, frames = tokens.shape
    if count > frames:
        raise ValueError(
            f"The text has {count} tokens, more than the {frames} frames of the audio: it does not fit the audio."
        )
    # A column holds the best sums of the paths that are, in this frame, in token t, or in the pause before token t.
    spoken, silent = np.full(count, _NEVER), np.full(count + 1, _NEVER)
    spoken[0], silent[0] = tokens[0, 0], pause[0]
    may_pause = np.append(first, True)
    entered = np.zeros((frames, count), np.int8)  # 1: from the token before, 2: from the pause before it
    stopped = np.zeros((frames, count + 1), bool)  # from the token before
    for frame in range(1, frames):
        before = np.append(_NEVER, spoken)
        choices = np.stack([spoken, before[:-1], np.where(first, silent[:-1], _NEVER)])
        rests = np.stack([silent, np.where(may_pause, before, _NEVER)])
        entered[frame], stopped[frame] = choices.argmax(axis=0), rests.argmax(axis=0)
        spoken, silent = choices.max(axis=0) + tokens[:, frame], rests.max(axis=0) + pause[frame]
    spans = np.zeros((count, 2), int)
    token, in_pause = (count, True) if silent[-1] > spoken[-1] else (count - 1, False)
    if not in_pause:
        spans[token, 1] = frames
    for frame in range(frames - 1, 0, -1):
        if in_pause and stopped[frame, token]:
            token, in_pause = token - 1, False
            spans[token, 1] = frame
        elif not in_pause and entered[frame, token]:
            spans[token, 0] = frame
            in_pause = entered[frame, token] == 2
            if not in_pause:
                token -= 1
                spans[token, 1] = frame
    return spans
