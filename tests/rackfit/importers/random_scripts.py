"""Small scripts put together at random of what public launch scripts are made of, all of whose variables are known."""

from __future__ import annotations

from random import Random

NAMES = ("TP", "DP", "MODE", "ARGS", "N")
WORDS = ("a", "b", "tp8", "x y", "", "--flag", "a/b.c", "8")


def script(random: Random) -> str:
    """A script that sets variables and starts ``serve`` with what they hold."""
    head = [
        "TP=8",
        "DP=1",
        "MODE=a",
        "ARGS='-x  1'",
        "N=3",
        "LIST=(one 'two words' '')",
        "declare -A MAP=([a]=4 [b]=6)",
    ]
    functions = [
        f"{name}() {{\n{_block(random, 2, inside=True)}\n}}" for name in ("first", "second")
    ]
    return "\n".join(
        [
            *head,
            *functions,
            _block(random, 0),
            'serve last $TP "$DP" "$MODE" $ARGS "${LIST[@]}" $N',
            "",
        ]
    )


def _block(random: Random, depth: int, *, inside: bool = False) -> str:
    return "\n".join(_one(random, depth, inside=inside) for _ in range(random.randrange(1, 4)))


def _value(random: Random) -> str:
    name = random.choice(NAMES)
    return random.choice((
        f'"{random.choice(WORDS)}"', f"'{random.choice(WORDS)}'", f'"${name}"', f"${name}", f'"pre-${{{name}}}-post"', f'"${{{name}:-none}}"',
        f'"${{{name}:+--set}}"', f'"${{{name}##*/}}"', f'"${{{name}%.*}}"', f"$(({random.randrange(9)} * N + 2))", '"${LIST[1]}"', '"${#LIST[@]}"',
        f'"${{MAP[{random.choice("ab")}]}}"', f"$(echo $N {random.randrange(5)})", f'"${{{name}/a/z}}"', f'"${{{name}^^}}"', f"{random.randrange(20)}",
        f'"${{NOTHING-{random.choice("ab")}}}"', "$'a\\tb'", f'"${{{name}:-"in quotes"}}"', f'"${{{name}:0:2}}"', f'"${{{name}//a/zz}}"', "$(((N + 1) * 2 - -1))", "$((N>2?1:0))",
        "$((2 ** 3 % 5))", f"$(basename \"/x/${{{name}}}y\")", "pre'quo'\"ted $N\"", f'"${{{name}%%8*}}"', "$((N + 0))", f"$(printf 'a %s-%d%%' \"${name}\" $N)", f'"${{{name},,}}"', f'"\\"${name}\\""', "one\\ word",
    ))  # fmt: skip


def _test(random: Random) -> str:
    name, word = random.choice(NAMES), random.choice(WORDS)
    one = random.choice((
        f'[ "${name}" = "{word}" ]', f'[[ ${name} == "{word}" ]]', f"[[ ${name} != {random.choice('ab8')}* ]]", '[ "$N" -gt 2 ]', "[[ $N -le 3 ]]",
        f'[ -n "${name}" ]', f'[ -z "${name}" ]', "(( N % 2 == 0 ))", "((N>2))", f'[[ "${name}" == a || $N -eq 3 ]]', f'[[ ! ( -z "${name}" && $N -gt 1 ) ]]',
        "true", "false", f'test "${name}" != b', '[[ -n "$MODE" && "$MODE" != /* ]]',
    ))  # fmt: skip
    return random.choice(
        (one, one, f"! {one}", f"{one} && [ $N -lt 9 ]", f"{one} || [[ $MODE = a ]]")
    )


def _one(random: Random, depth: int, *, inside: bool) -> str:
    simple = (
        lambda: f"{random.choice(NAMES[:4])}={_value(random)}",
        lambda: f"ARGS+={_value(random)}",
        lambda: f"TP={_value(random)}; DP={_value(random)}",
        lambda: f"LIST=({_value(random)} {_value(random)})",
        lambda: f"LIST+=({_value(random)})",
        lambda: f"serve {_value(random)} $ARGS \"${random.choice(NAMES)}\" \"${{LIST[@]}}\" ${{LIST[0]}} {_value(random)}",
        lambda: f"{_test(random)} && MODE={_value(random)}",
        lambda: f"{_test(random)} || {{ DP={_value(random)}; N=$((N + 1)); }}",
        lambda: f"((N {random.choice(('+=', '-=', '*='))} {random.randrange(1, 4)}))",
        lambda: f"export MODE={_value(random)}",
        lambda: f"(TP={_value(random)}; serve inner $TP)",
        lambda: f"unset {random.choice(('DP', 'MODE'))}",
        lambda: "let N++",
        lambda: f"serve one $TP & wait; serve two {_value(random)}",
        lambda: "eval \"serve evaluated $ARGS '$MODE'\"",
        lambda: "set -- first 'the second'; serve \"$#\" \"$2\" \"$@\"; shift; serve \"$1\"" if not inside else "serve \"$#\" \"$1\" \"$@\"",
        lambda: f"local MODE={_value(random)} N=$((N + 2))" if inside else f"readonly FIXED_{random.randrange(10**6)}={_value(random)}",
        lambda: f"LIST=(\n  {_value(random)} # (a bracket\n  {_value(random)}\n)",
        lambda: f"serve long \\\n  {_value(random)} \\\n  --more=$N",
        lambda: "cat > /dev/null <<EOF\nit's $N in ( a text\nEOF\nserve after",
        lambda: f"{_test(random)} && return 1; serve further \"${{@:2}}\" \"$2\"" if inside else "serve \"${#LIST[@]}\"",
        lambda: "[ $N -gt 1 -a \"$MODE\" != b ] && serve joined",
        lambda: f"MAP[c]={_value(random)}; serve mapped \"${{MAP[c]}}\"",
        lambda: f": {_value(random)} # a comment of 'one quote\n:",
    )  # fmt: skip
    if depth > 2 or random.random() < 0.55:
        return random.choice(simple)()
    body = _block(random, depth + 1, inside=inside)
    other = _block(random, depth + 1, inside=inside)
    last = f"{random.choice(('break', 'continue', ':'))}"
    return random.choice((
        f"if {_test(random)}; then\n{body}\nelif {_test(random)}\nthen {other}\nelse\n{other}\nfi",
        f"if {_test(random)}; then {random.choice(simple)()}\nfi",
        f'case "${random.choice(NAMES)}" in\na|b) {body} ;;\n[0-9]*)\n{other}\n;;\n*--*) serve flag;;\n*) {body}\nesac',
        f"for each in $ARGS \"${{LIST[@]}}\" {_value(random)}; do\n{body}\nserve loop \"$each\"\ndone",
        f"for i in {{0..2}}; do if {_test(random)}; then {last}; fi; serve round $i $N; done",
        f"for ((i = 0; i < N && i < 4; i++)); do serve counted $i {_value(random)}; done",
        f"for i in $(seq 1 3); do\n{body}\n[[ $i == 2 ]] && {last}\nserve $i\ndone",
        f"k=0; while [ $k -lt 3 ]; do k=$((k + 1)); serve turn $k {_value(random)}; done",
        f"until (( N > 4 )); do N=$((N + 2)); serve until $N; {random.choice(('break', ':'))}; done",
        f"first {_value(random)} $ARGS; second \"$MODE\"" if not inside else "serve inside",
        f"{{ {random.choice(simple)()}\nserve group \"$MODE\"; }}",
        f"serve piped {_value(random)} | cat > /dev/null",
    ))  # fmt: skip
