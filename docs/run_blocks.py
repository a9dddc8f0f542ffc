"""Run the blocks of a page: ``python run_blocks.py RESULT FIGURES`` reads them as JSON and writes what they gave."""

import ast
import contextlib
import io
import json
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

mpl.rcParams.update({"svg.hashsalt": "sostenuto", "figure.figsize": (7.2, 3.2), "figure.constrained_layout.use": True})
mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})


def run_python(code, names):
    """Run a block; give what it printed, and the value of a last line that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "block", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "block", "eval"), names)
            if value is not None and not isinstance(value, Figure) and not is_call_for_effect(last.value):
                print(repr(value))
    return printed.getvalue(), value


def is_call_for_effect(node):
    """Say whether an expression is a call whose value a reader does not want to see, such as ``axes.plot(…)``."""
    drawing = {"plot", "fit", "set", "legend", "savefig", "semilogy", "semilogx", "loglog", "hist", "imshow"}
    hidden = drawing | {"fill_between", "axhline", "axvline", "bar", "barh", "scatter", "step", "save"}
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in hidden


def run_console(code):
    """Run lines that start with ``$``; give what they printed. A command may fail where ``# exit code N`` says so."""
    printed = []
    for line in code.splitlines():
        if not line.startswith("$ "):
            continue
        command, _, remark = line[2:].partition("  # exit code ")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        if done.returncode != int(remark or 0):
            raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        printed.append(done.stdout + (done.stderr if remark else ""))
    return "".join(printed)


def save_figures(value, prefix):
    """Store the figures of a block, those of pyplot and one that is its value, and close them."""
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if isinstance(value, Figure) and value not in figures:
        figures.append(value)
    names = []
    for index, figure in enumerate(figures):
        path = Path(f"{prefix}-{index}.svg")
        figure.savefig(path, metadata={"Date": None})
        names.append(path.name)
    plt.close("all")
    return names


def main():
    """Run all blocks and write their outputs."""
    result, prefix = sys.argv[1:]
    names = {"__name__": "__main__"}
    outputs = []
    for index, job in enumerate(json.load(sys.stdin)):
        if job is None:
            outputs.append(None)
            continue
        language, code = job
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            text, value = run_python(code, names) if language == "python" else (run_console(code), None)
        outputs.append({"text": text, "figures": save_figures(value, f"{prefix}-{index}")})
    Path(result).write_text(json.dumps(outputs), encoding="utf-8")


if __name__ == "__main__":
    main()
