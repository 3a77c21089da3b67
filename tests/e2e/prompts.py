"""Natural prompts (F20: random letters hide and invent differences), from one token to about two thousand."""

_OPENINGS = (
    "The capital of France is",
    "Once upon a time there was a lighthouse keeper who",
    "To make a good loaf of bread, first",
    "The main difference between a list and a tuple in Python is",
    "Dear Sir or Madam, I am writing to",
    "In 1969 the first people walked on",
    "def fibonacci(n):\n    ",
    "The water cycle begins when",
    "Q: What is the boiling point of water?\nA:",
    "My favourite season is autumn, because",
    "The three branches of government are",
    "A haiku about the sea:\n",
    "SELECT name, price FROM products WHERE",
    "Photosynthesis is the process by which",
    "The quick brown fox",
    "Two plus two equals",
)
_SENTENCES = (
    "The harbour was quiet before sunrise, and only the gulls were awake. ",
    "A cart with crates of apples stood beside the old stone wall. ",
    "Maria counted the boats twice and wrote the number into her notebook. ",
    "The baker opened his door, and the smell of warm bread filled the street. ",
    "Nobody could remember when the clock on the tower had last been right. ",
    "It rained a little, then the sun came out and dried the cobblestones. ",
    "The children asked how deep the water was, and he told them a story instead. ",
    "At noon the ferry arrived with letters, tools and a box of oranges. ",
)
_QUESTIONS = ("In short, this text is about", "The next morning", "What Maria wrote down was", "Meanwhile")


def natural_prompts() -> list[str]:
    """48 texts: 1 token, then openings, then texts of growing length, the longest of about 2,000 tokens."""
    prompts = ["Hello", "The", *_OPENINGS]
    lengths = (*range(1, 16), *range(2, 13), 20, 40, 60, 128)
    for number, count in enumerate(lengths):
        text = "".join(_SENTENCES[(number + 3 * i) % len(_SENTENCES)] for i in range(count))
        prompts.append(text + _QUESTIONS[number % len(_QUESTIONS)])
    return prompts
