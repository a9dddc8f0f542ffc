"""``python -m sostenuto.cli``: what ``accelerate launch -m`` starts."""

from sostenuto.cli import main

if __name__ == "__main__":
    main()
