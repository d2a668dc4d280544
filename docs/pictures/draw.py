"""Draws a screen with its colours, as tmux captures it, as SVG.

    draw.py TITLE < screen > picture.svg
"""

import html
import re
import sys

NORMAL = ["#1c1f24", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#abb2bf"]
BRIGHT = ["#5c6370", "#ff7a85", "#b5e890", "#ffd58a", "#7fc1ff", "#e08cff", "#6fd6e2", "#ffffff"]
PAPER, INK = "#16181d", "#c8ccd4"
WIDTH, HEIGHT, MARGIN = 8.4, 17, 14


def colour(code, bright=False):
    return (BRIGHT if bright else NORMAL)[code]


def from_256(number):
    if number < 16:
        return colour(number % 8, number >= 8)
    if number >= 232:
        level = 8 + (number - 232) * 10
        return f"#{level:02x}{level:02x}{level:02x}"
    parts = [(number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6]
    return "#" + "".join(f"{0 if part == 0 else 55 + part * 40:02x}" for part in parts)


def styled(state, codes):
    """The style after one escape sequence."""
    codes = [int(code or 0) for code in codes.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            state = dict(ink=None, paper=None, bold=False, reverse=False)
        elif code in (1, 7):
            state = {**state, "bold" if code == 1 else "reverse": True}
        elif code in (22, 27):
            state = {**state, "bold" if code == 22 else "reverse": False}
        elif code in (38, 48) and codes[:1] == [5]:
            state = {**state, "ink" if code == 38 else "paper": from_256(codes[1])}
            codes = codes[2:]
        elif 30 <= code <= 37 or 90 <= code <= 97:
            state = {**state, "ink": colour(code % 10, code >= 90)}
        elif 40 <= code <= 47 or 100 <= code <= 107:
            state = {**state, "paper": colour(code % 10, code >= 100)}
        elif code in (39, 49):
            state = {**state, "ink" if code == 39 else "paper": None}
    return state


title = sys.argv[1]
lines = sys.stdin.read().rstrip("\n").split("\n")
state = styled({}, "0")
shapes, widest = [], 0
for row, line in enumerate(lines):
    column = 0
    y = MARGIN + HEIGHT * (row + 2)
    for part in re.split(r"(\x1b\[[0-9;]*m|\x0e|\x0f)", line):
        escape = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if escape:
            state = styled(state, escape[1])
            continue
        if part in ("\x0e", "\x0f", ""):
            continue
        ink, paper = state["ink"] or INK, state["paper"] or PAPER
        if state["reverse"]:
            ink, paper = paper, ink
        x = MARGIN + column * WIDTH
        if paper != PAPER:
            width = len(part) * WIDTH
            shapes.append(f'<rect x="{x:.1f}" y="{y - 13}" width="{width:.1f}" height="{HEIGHT}" fill="{paper}"/>')
        weight = ' font-weight="bold"' if state["bold"] else ""
        length = f'textLength="{len(part) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
        shapes.append(f'<text x="{x:.1f}" y="{y}" fill="{ink}"{weight} {length}>{html.escape(part)}</text>')
        column += len(part)
    widest = max(widest, column)
width = int(MARGIN * 2 + WIDTH * max(widest, 80))
height = MARGIN * 2 + HEIGHT * (len(lines) + 1)
print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"')
print('  font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13.5" xml:space="preserve">')
print(f"<title>{html.escape(title)}</title>")
print(f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>')
print(f'<text x="{width / 2:.0f}" y="{MARGIN + 6}" fill="#7f848e" text-anchor="middle">{html.escape(title)}</text>')
print("\n".join(shapes))
print("</svg>")
