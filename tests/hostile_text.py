"""Text that a terminal would obey or show as something else, and a search for what of it is left in an output."""

import re
import unicodedata

FORGED = "secret/forged  team-a  deleted"
# A row of its own, the clipboard (OSC 52), the screen (CSI as one character), another direction, and what has no shape.
HOSTILE = f"x\n{FORGED}\r\t\x00\x1b]52;c;Zm9v\x07\x7f\x85\x9b2J\u061c\u200b\u200e\u202e\u2028\u2066\u3164\ue000z"
_OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NOT_FOR_TERMINALS = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def left_in(output: str) -> list[str]:
    """What of hostile text is in an output as it is; the ends of lines and colours are the command's own."""
    text = _OUR_COLOURS.sub("", output)
    found = {each for each in text if unicodedata.category(each) in _NOT_FOR_TERMINALS or each == "\u3164"} - {"\n"}
    return [*sorted(map(ascii, found)), *(line for line in text.splitlines() if line.startswith(FORGED))]
