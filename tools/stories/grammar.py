"""A grammar of short stories: the only source of the text that the embedded model is trained on.

`story(rng)` returns one story of 80 to 220 words. A story has a cast (a hero, a friend, sometimes an elder), a place, a thing
that the hero wants, an obstacle, a turn and an ending; every sentence is drawn from several wordings and agrees with the cast in
name and pronoun. Nothing is downloaded and nothing is copied: all sentences stand in this file.
"""

import random

GIRLS = "Anna Mia Lily Rosa Ella Nora Ruby Tess Ivy Clara Maya Wendy Hazel June Daisy Emma".split()
BOYS = "Tom Ben Max Leo Sam Finn Jack Oscar Hugo Theo Noah Eli Peter Toby Will Adam".split()
ANIMALS = ["fox", "rabbit", "bear", "mouse", "owl", "duck", "cat", "dog", "frog", "hedgehog", "squirrel", "turtle"]
ADJ_HERO = ["little", "kind", "curious", "brave", "shy", "clever", "cheerful", "quiet", "young", "gentle"]
PLACES = {
    "forest": ("in a green forest", "the forest", ["an old oak", "a mossy stone", "a narrow path", "a hollow tree"]),
    "village": ("in a small village", "the village", ["the old well", "the bakery", "the stone bridge", "the market"]),
    "sea": ("near the blue sea", "the beach", ["a wooden boat", "the lighthouse", "a big rock", "the soft sand"]),
    "farm": ("on a quiet farm", "the farm", ["the red barn", "the duck pond", "the apple tree", "the wooden fence"]),
    "hill": ("on a windy hill", "the hill", ["the old mill", "a tall pine", "the stone wall", "a small cave"]),
    "river": ("by a slow river", "the river", ["the little bridge", "a willow tree", "the flat stones", "the reeds"]),
}
WEATHER = [
    "The sun was warm and the sky was blue.", "A soft wind moved the leaves.", "It had rained all night, and the grass was wet.",
    "White clouds floated over the hills.", "The morning was cold and bright.", "The birds were singing in the trees.",
    "There was a little snow on the roofs.", "The air smelled of flowers.",
]
LOST = [
    ("red", "kite"), ("blue", "ball"), ("silver", "bell"), ("small", "drum"), ("green", "scarf"), ("wooden", "boat"),
    ("golden", "key"), ("warm", "hat"), ("old", "book"), ("tiny", "lantern"), ("yellow", "cup"), ("shiny", "coin"),
]
FOODS = ["apple pie", "warm bread", "berry jam", "honey cakes", "carrot soup", "nut cookies", "sweet pears", "corn bread"]
SKILLS = [
    ("swim", "swimming", "the water"), ("sing", "singing", "the song"), ("climb", "climbing", "the tall tree"),
    ("paint", "painting", "the picture"), ("dance", "dancing", "the steps"), ("read", "reading", "the long words"),
    ("whistle", "whistling", "the tune"), ("skate", "skating", "the ice"),
]
FEARS = [
    ("the dark", "a soft sound", "the wind in the door"), ("the storm", "a loud crash", "a branch on the roof"),
    ("the old house", "a strange voice", "a lonely parrot"), ("the deep wood", "two bright eyes", "a sleepy cat"),
    ("the night", "a slow knock", "a friend with a lamp"), ("the big dog", "a low growl", "a puppy with a sore paw"),
]
LESSONS = [
    "that a friend is the best thing to find", "that it is good to ask for help", "that being brave does not mean having no fear",
    "that small steps can go a long way", "that sharing makes every gift bigger", "that kind words cost nothing",
    "that you must try again when you fail", "that telling the truth is always better", "that patience is a quiet kind of magic",
]
CLOSINGS = [
    "From that day on, {hero} and {friend} were the best of friends.", "That night {hero} slept well and dreamed of {place}.",
    "{Hero} smiled all the way home.", "And every year they remembered that day and laughed.",
    "{Hero} never forgot it.", "Then the stars came out, and everyone went home happy.",
]
OPENINGS = [
    "Once upon a time, {intro} lived {where}.", "Long ago, {intro} lived {where}.", "There was once {intro} who lived {where}.",
    "{Where} there lived {intro}.",
]


class Cast:
    """Someone in the story: a name, pronouns, and the words that introduce them."""

    def __init__(self, rng, taken):
        girl = rng.random() < 0.5
        self.name = rng.choice([n for n in (GIRLS if girl else BOYS) if n not in taken])
        self.he, self.him, self.his = ("she", "her", "her") if girl else ("he", "him", "his")
        self.animal = rng.choice(ANIMALS) if rng.random() < 0.5 else None
        self.kind = self.animal or ("girl" if girl else "boy")
        self.adj = rng.choice(ADJ_HERO)

    def intro(self):
        return f"{article(self.adj)} {self.kind} named {self.name}"


def article(word):
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def cap(text):
    return text[0].upper() + text[1:]


class Story:
    """The state of one story; `say` draws one of several wordings and fills in the names."""

    def __init__(self, rng):
        self.rng = rng
        self.hero = Cast(rng, ())
        self.friend = Cast(rng, (self.hero.name,))
        self.where, self.place, self.spots = PLACES[rng.choice(list(PLACES))]
        self.lines = []
        h, f = self.hero, self.friend
        self.words = {
            "hero": h.name, "Hero": h.name, "he": h.he, "He": cap(h.he), "him": h.him, "his": h.his, "His": cap(h.his),
            "friend": f.name, "fhe": f.he, "Fhe": cap(f.he), "fhim": f.him, "fhis": f.his, "fkind": f.kind, "fintro": f.intro(),
            "place": self.place, "where": self.where, "Where": cap(self.where), "intro": h.intro(), "kind": h.kind,
            "spot": rng.choice(self.spots), "food": rng.choice(FOODS), "lesson": rng.choice(LESSONS),
        }

    def say(self, *wordings):
        line = self.rng.choice(wordings).format(**self.words)
        self.lines.append(cap(line))

    def maybe(self, chance, *wordings):
        if self.rng.random() < chance:
            self.say(*wordings)

    def open(self):
        self.say(*OPENINGS)
        self.maybe(0.6, *WEATHER)

    def meet(self):
        self.say(
            "On the way {he} met {fintro}.", "Near {spot} {he} met {fintro}.", "Soon {he} saw {fintro} sitting by {spot}.",
            "Then {fintro} came along.",
        )
        self.say(
            '"Hello," said {friend}. "Why do you look so sad?"', '"Good morning," said {friend}. "Can I help you?"',
            '"What is wrong?" asked {friend}.', '"Hello, {hero}," said {friend}. "You look worried."',
        )

    def close(self):
        self.say("{Hero} had learned {lesson}.", "{He} learned {lesson}.", "That day {hero} learned {lesson}.")
        self.say(*CLOSINGS)

    def text(self):
        return " ".join(self.lines)


def lost_thing(s):
    adj, noun = s.rng.choice(LOST)
    s.words.update(adj=adj, noun=noun, thing=f"{adj} {noun}", athing=f"{article(adj)} {noun}")
    s.open()
    s.say("{Hero} had {athing} and took it everywhere.", "{He} loved {his} {thing} more than anything.", "{Hero} had {athing}. It was a gift from {his} grandmother.")
    s.say("One morning the {noun} was gone.", "One day {he} could not find the {noun}.", "But one day the {thing} was lost.")
    s.say("{He} looked under the bed and behind the door, but it was not there.", "{He} looked in every room, but the {noun} was not there.", "{Hero} searched everywhere and found nothing.")
    s.maybe(0.6, "{Hero} began to cry.", "{Hero} felt very sad.", "{He} sat down and did not know what to do.")
    s.meet()
    s.say('"I have lost my {thing}," said {hero}.', '"My {noun} is gone," {hero} said.', '"I cannot find my {thing}," said {hero}.')
    s.say('"Do not worry," said {friend}. "We will look together."', '"I will help you," said {friend}. "Four eyes see more than two."', '"Let us look near {spot}," said {friend}.')
    s.say("They walked for a long time and looked in every corner.", "They asked everyone they met.", "Together they followed the path to {spot}.")
    s.say("At last {friend} saw something in the grass. It was the {thing}!", "Suddenly {hero} saw the {noun} behind {spot}.", "There, under {spot}, was the {thing}.")
    s.say('"Thank you!" said {hero}, and {he} hugged {friend}.', "{Hero} jumped for joy and thanked {fhim}.", '"You are a true friend," said {hero}.')
    s.maybe(0.5, "They went home and ate {food}.", "Then they shared {food} in the sun.")
    s.close()


def learn_skill(s):
    verb, gerund, hard = s.rng.choice(SKILLS)
    s.words.update(verb=verb, gerund=gerund, hard=hard)
    s.open()
    s.say("{Hero} wanted to learn to {verb}.", "More than anything, {hero} wanted to {verb}.", "All {his} friends could {verb}, but {hero} could not.")
    s.say("{He} tried every day, but {hard} was too hard.", "The first time {he} tried, everything went wrong.", "{He} tried once, and {he} tried twice, but it did not work.")
    s.maybe(0.6, '"I will never learn," said {hero}.', '"This is too hard for me," {he} said.', "{Hero} wanted to give up.")
    s.meet()
    s.say('"I cannot {verb}," said {hero}.', '"I want to {verb}, but I always fail," said {hero}.')
    s.say('"Nobody can do it the first time," said {friend}. "Watch me."', '"I was afraid of {gerund} too," said {friend}. "Let me show you."', '"Start slowly," said {friend}. "I will stay with you."')
    s.say("So they practiced near {spot} until the sun went down.", "Every morning they met by {spot} and practiced.", "{Friend_} showed {him} how, again and again.")
    s.say("After a week {hero} could {verb} a little.", "Day by day {he} got better.", "Slowly {hard} became easy.")
    s.say("One day {he} was {gerund} all alone, and everyone clapped.", "In the end {hero} could {verb} as well as anyone else.", "Then, one bright morning, {he} did it!")
    s.say('"You did it!" cried {friend}.', '"I knew you could," said {friend}.', "{Friend_} was very proud of {him}.")
    s.close()


def be_brave(s):
    fear, sign, truth = s.rng.choice(FEARS)
    s.words.update(fear=fear, sign=sign, truth=truth)
    s.open()
    s.say("{Hero} was afraid of {fear}.", "There was one thing that {hero} did not like. It was {fear}.", "{He} was not afraid of much, but {he} was afraid of {fear}.")
    s.say("One evening {he} was alone at home.", "One night {he} could not sleep.", "One day {he} had to go past {spot} alone.")
    s.say("Suddenly there was {sign}.", "Then {he} noticed {sign}.", "All at once there was {sign} outside.")
    s.say("{His} heart beat fast.", "{Hero} hid under the blanket.", "{He} wanted to run away.")
    s.say("But {he} took a deep breath and went to look.", "Then {he} thought of {friend} and felt stronger.", '"I can do this," {he} said, and took one step, and then another.')
    s.say("It was only {truth}.", "And what was it? It was only {truth}!", "{He} opened {his} eyes. It was just {truth}.")
    s.say("{Hero} laughed out loud.", "{He} laughed and felt much better.", "How {he} laughed!")
    s.say("The next day {he} told {friend} about it.", "In the morning {hero} told everything to {friend}.")
    s.say('"You were very brave," said {friend}.', '"I would have been afraid too," said {friend}.', '"Next time, call me," said {friend}, "and we will look together."')
    s.close()


def share_food(s):
    s.open()
    s.say("One day {hero} made {food}.", "{Hero} liked to cook. One morning {he} made {food}.", "It was {his} birthday, and {hero} had {food}.")
    s.say("It smelled so good that {he} wanted to eat it all alone.", "{He} wanted to keep it all.", '"This is all for me," said {hero}.')
    s.say("{He} carried it to {spot} and sat down.", "{He} hid behind {spot} with the plate.")
    s.say("There {he} saw {fintro}.", "Then {fintro} came by.", "Just then {fintro} walked past.")
    s.say("{Fhe} was hungry and had nothing to eat.", "{Friend_} looked at the plate but said nothing.", '"I have not eaten since yesterday," said {friend}.')
    s.say("{Hero} thought about it for a while.", "{Hero} looked at the food, and then at {friend}.", "At first {hero} did not want to share.")
    s.say('"Sit down and eat with me," {he} said at last.', 'Then {he} smiled. "There is enough for two," {he} said.', "Then {he} gave half of it to {friend}.")
    s.say("They ate together, and it tasted better than ever.", "They ate, talked and laughed until evening.", "The food was soon gone, but they were both happy.")
    s.say("The next day {friend} came back with a basket of berries.", "A week later {friend} brought {him} a small gift.", '"Tomorrow I will bring something for you," said {friend}, and {fhe} did.')
    s.close()


def broken_thing(s):
    adj, noun = s.rng.choice(LOST)
    s.words.update(adj=adj, noun=noun, thing=f"{adj} {noun}", athing=f"{article(adj)} {noun}")
    s.open()
    s.say("{His} best friend was {fintro}.", "Next door lived {fintro}.", "{He} often played with {fintro}.")
    s.say("{Friend_} had {athing}.", "One day {friend} brought {athing} to play with.", "{Friend_} was very proud of {fhis} {thing}.")
    s.say("While they played, {hero} dropped the {noun} and it broke.", "{Hero} ran too fast, fell on the {noun}, and broke it.", "{Hero} borrowed the {noun}, and by accident it broke.")
    s.say("Nobody had seen it.", "{Friend_} had not seen it.", "{Hero} hid it behind {spot}.")
    s.say('"Where is my {noun}?" asked {friend}.', "{Friend_} looked for the {noun} everywhere.", '"Have you seen my {thing}?" asked {friend}.')
    s.say("{Hero} felt a stone in {his} heart.", "{Hero} did not know what to say.", "{He} could not sleep that night.")
    s.say('At last {he} said, "I broke it. I am sorry."', 'Then {hero} told the truth. "It was me," {he} said. "I am so sorry."')
    s.say("{Friend_} was sad, but not angry.", "{Friend_} was quiet for a moment.", "{Friend_} looked at {him} for a long time.")
    s.say('"Thank you for telling me," said {friend}. "We can fix it."', '"Everyone makes mistakes," said {friend}. "Let us repair it together."')
    s.say("They worked all afternoon, and the {noun} was almost like new.", "With some glue and a little luck, they made it whole again.", "They fixed the {thing} together near {spot}.")
    s.close()


PLOTS = [lost_thing, learn_skill, be_brave, share_food, broken_thing]


def story(rng: random.Random) -> str:
    """One story on one line."""
    s = Story(rng)
    s.words["Friend_"] = s.friend.name
    rng.choice(PLOTS)(s)
    return s.text()


if __name__ == "__main__":
    for seed in range(3):
        print(story(random.Random(seed)), "\n")
