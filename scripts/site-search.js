/**
 * The site's search, in the browser: over all pages, without a server. The words of the pages come with the first question, as a script,
 * because a page that is opened from a folder may not fetch.
 */
const MOST_RESULTS = 20;
const here = document.currentScript.src;
const header = document.querySelector("header");
const field = document.createElement("input");
const results = document.createElement("ol");
field.type = "search";
field.placeholder = "Search (press /)";
field.setAttribute("aria-label", "Search all pages");
results.className = "results";
results.setAttribute("aria-label", "Results");
results.hidden = true;
header.append(field, results);

let asked;
/** What all sections are found by; each has `page`, `anchor`, `title`, `heading` and `text`. */
function sections() {
  asked ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("search-index.js", here);
    script.onload = () => resolve(globalThis.searchIndex.map(known));
    script.onerror = reject;
    document.head.append(script);
  });
  return asked;
}

/** What every question has. */
const COMMON = new Set(
  "a an and are at can do does for how i if in is it my of on or the this to what when where which why with wrong".split(
    " ",
  ),
);

/** Words of a text, each once. */
const wordsOf = (text) => [...new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu))];

const begins = (words, word) => words.some((one) => one.startsWith(word));

/** What a section is found by. */
const known = (section) => ({
  section,
  heading: wordsOf(section.heading).filter((word) => !COMMON.has(word)),
  title: wordsOf(section.title),
  text: wordsOf(section.text),
});

/** A word in a short heading counts most, then one in a long heading, in the page's title, in the text. Words may be beginnings. */
function placeOf({ heading, title, text }, word) {
  if (begins(heading, word)) return 2 + 4 / heading.length;
  if (begins(title, word)) return 1.5;
  return begins(text, word) ? 1 : 0;
}

/** A rare word counts more than one that every section has; what only comments cite, and history, come last. */
function ranked(all, question) {
  const scores = all.map(() => 0);
  for (const word of wordsOf(question).filter((one) => !COMMON.has(one))) {
    const places = all.map((one) => placeOf(one, word));
    const rarity = Math.log(all.length / (1 + places.filter((place) => place > 0).length));
    for (const [index, place] of places.entries()) scores[index] += place * Math.max(0, rarity);
  }
  return all
    .map(({ section }, index) => ({
      section,
      score: scores[index] / (/^docs\/(?:reference|notes)\/|^CHANGELOG/.test(section.page) ? 4 : 1),
    }))
    .filter(({ score }) => score > 0)
    .sort((first, second) => second.score - first.score)
    .slice(0, MOST_RESULTS)
    .map(({ section }) => section);
}

/** The text around the first of the words that it has. */
function snippetOf(text, question) {
  const longest = wordsOf(question).sort((first, second) => second.length - first.length);
  const at = longest.map((word) => text.toLowerCase().indexOf(word)).find((place) => place >= 0) ?? 0;
  const start = Math.max(0, at - 40);
  return `${start > 0 ? "…" : ""}${text.slice(start, start + 120)}…`;
}

function resultOf({ page, anchor, title, heading, text }, question) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  const snippet = document.createElement("small");
  link.href = new URL(anchor === "" ? page : `${page}#${anchor}`, here);
  link.textContent = heading === title ? title : `${title}: ${heading}`;
  link.addEventListener("click", () => {
    results.hidden = true;
  });
  snippet.textContent = snippetOf(text, question);
  item.append(link, snippet);
  return item;
}

async function search() {
  const question = field.value;
  const found = question.trim() === "" ? [] : ranked(await sections(), question);
  if (question !== field.value) return;
  const none = document.createElement("li");
  none.textContent = "No page has any of these words.";
  results.replaceChildren(...(found.length === 0 ? [none] : found.map((section) => resultOf(section, question))));
  results.hidden = question.trim() === "";
}

field.addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") results.hidden = true;
  if (event.key !== "/" || event.target === field) return;
  event.preventDefault();
  field.focus();
});
