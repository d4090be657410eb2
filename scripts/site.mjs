/**
 * `npm run site [FOLDER]`: the documents as a static web site: one page for each Markdown file, under its path. What they link to beside
 * each other becomes a page, too: a folder with all its files, a file with its text. Everything works from a folder, and but for the search
 * without scripts.
 */
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, posix, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Marked } from "marked";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const [given] = process.argv.slice(2);
const target = resolve(given ?? join(root, "site"));
const PAGES = globSync(["*.md", "docs/**/*.md", "deploy/**/*.md", "testkit/**/*.md"], { cwd: root });

const escaped = (text) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
const read = (path) => readFileSync(join(root, path), "utf8");
const isFolder = (path) => statSync(join(root, path)).isDirectory();

/** `docs/reference/README.md` becomes `docs/reference/index.html`. */
function pageOf(path) {
  if (path.endsWith(".md")) return path.replace(/(^|\/)README\.md$/, "$1index.md").replace(/\.md$/, ".html");
  if (path.endsWith(".svg")) return path;
  return isFolder(path) ? `${path}/index.html` : `${path}.html`;
}

/** Link targets that are not documents. */
const others = new Set();

/** The relative link from one page of the site to what a document links to. */
function linkFrom(page, path, href) {
  if (/^([a-z]+:|#)/.test(href)) return href;
  const [file, anchor] = href.split("#");
  const linked = posix.join(posix.dirname(path), file).replace(/\/$/, "");
  const found = PAGES.includes(`${linked}/README.md`) ? `${linked}/README.md` : linked;
  if (!PAGES.includes(found)) others.add(found);
  const way = posix.relative(posix.dirname(page), pageOf(found));
  return anchor === undefined ? way : `${way}#${anchor}`;
}

/** The anchor of a heading, as GitHub makes it. */
function anchorMaker() {
  const taken = new Map();
  return (text) => {
    const plain = text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
    const words = plain.replaceAll(/[^\p{L}\p{N}\p{M}\p{Pc}\- ]/gu, "").replaceAll(" ", "-");
    const count = taken.get(words) ?? 0;
    taken.set(words, count + 1);
    return count === 0 ? words : `${words}-${count}`;
  };
}

/** The groups of README.md's last table are the site's navigation. */
const groups = read("README.md")
  .split("\n## More\n")[1]
  .matchAll(/^\| ([A-Z][^|]*) \| (.*) \|$/gm)
  .map(([, name, links]) => ({ name, links: [...links.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g)] }))
  .toArray();

/** Documents in the order of the navigation: the way from the first page to the last. */
const order = [
  "README.md",
  ...new Set(groups.flatMap(({ links }) => links.map(([, , href]) => href.split("#")[0]))),
].filter((path) => PAGES.includes(path));

/** Links to the pages before and after this one. */
function neighbours(page) {
  const index = order.findIndex((path) => pageOf(path) === page);
  const link = (path, words, relation) =>
    path === undefined
      ? ""
      : `<a rel="${relation}" href="${posix.relative(posix.dirname(page), pageOf(path))}">${words(escaped(titleOf(path)))}</a>`;
  if (index === -1) return "";
  return `<nav class="neighbours" aria-label="Previous and next page">${link(order[index - 1], (title) => `← ${title}`, "prev")}${link(order[index + 1], (title) => `${title} →`, "next")}</nav>`;
}

const titleOf = (path) => /^# (.*)$/m.exec(read(path))?.[1].replaceAll("`", "") ?? path;

/** What the search looks through: each section of each document. */
const searched = [];

function rememberSections(page, title, body) {
  for (const part of body.split(/(?=<h[1-6] id=")/)) {
    const [, anchor = ""] = /^<h[1-6] id="([^"]*)"/.exec(part) ?? [];
    const [, heading = title] = /^<h[1-6][^>]*>(.*?) <a class="anchor"/s.exec(part) ?? [];
    const plain = (html) =>
      html
        .replaceAll(/<[^>]*>/g, " ")
        .replaceAll(/&(amp|lt|gt|quot|#39);/g, (_, name) => ({ amp: "&", lt: "<", gt: ">", quot: '"' })[name] ?? "'")
        .replaceAll(/\s+/g, " ")
        .trim();
    const text = plain(part.replace(/^<h[1-6].*?<\/h[1-6]>/s, ""));
    searched.push({ page, anchor, title, heading: plain(heading), text });
  }
}

function navigation(page) {
  const entry = ([, title, href]) => {
    const way = linkFrom(page, "README.md", href);
    const here = way === posix.basename(page) ? ' aria-current="page"' : "";
    return `<li><a href="${way}"${here}>${escaped(title)}</a></li>`;
  };
  return groups.map(({ name, links }) => `<h2>${escaped(name)}</h2><ul>${links.map(entry).join("")}</ul>`).join("\n");
}

function write(page, { title, body, sections = [] }) {
  const up = posix.relative(posix.dirname(page), "style.css");
  const home = posix.relative(posix.dirname(page), "index.html");
  const contents =
    sections.length < 3
      ? ""
      : `<nav class="contents" aria-label="On this page"><ul>${sections.map(({ anchor, html }) => `<li><a href="#${anchor}">${html}</a></li>`).join("")}</ul></nav>`;
  const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'">
<title>${escaped(title)} · kube-proxy-ts</title>
<link rel="stylesheet" href="${up}">
<script defer src="${posix.relative(posix.dirname(page), "search.js")}"></script>
<a class="skip" href="#main">To the text</a>
<header><a href="${home}">kube-proxy-ts</a></header>
<details class="menu"><summary>All pages</summary><nav aria-label="Site">${navigation(page)}</nav></details>
<nav class="side" aria-label="Site">${navigation(page)}</nav>
<main id="main">
${contents}${body}${neighbours(page)}
</main>
</html>
`;
  mkdirSync(dirname(join(target, page)), { recursive: true });
  writeFileSync(join(target, page), html);
}

function writeDocument(path) {
  const page = pageOf(path);
  const anchor = anchorMaker();
  const sections = [];
  let title;
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth, text }) {
        const html = this.parser.parseInline(tokens);
        const plain = this.parser.parseInline(tokens, this.parser.textRenderer);
        title ??= plain
          .replaceAll("&amp;", "&")
          .replaceAll("&lt;", "<")
          .replaceAll("&gt;", ">")
          .replaceAll("&#39;", "'");
        const id = anchor(text);
        if (depth === 2) sections.push({ anchor: id, html: plain });
        return `<h${depth} id="${id}">${html} <a class="anchor" href="#${id}" aria-label="Link to this section">#</a></h${depth}>\n`;
      },
      link({ href, tokens }) {
        return `<a href="${escaped(linkFrom(page, path, href))}">${this.parser.parseInline(tokens)}</a>`;
      },
      image({ href, text }) {
        return `<img src="${escaped(linkFrom(page, path, href))}" alt="${escaped(text)}">`;
      },
    },
    hooks: {
      postprocess: (html) =>
        html.replaceAll("<table>", '<div class="wide" tabindex="0"><table>').replaceAll("</table>", "</table></div>"),
    },
  });
  const text = read(path);
  // Many documents begin with their contents.
  const hasContents = text.slice(0, 2_000).includes("](#");
  const body = marked.parse(text);
  write(page, { title: title ?? path, body, sections: hasContents ? [] : sections });
  rememberSections(page, title ?? path, body);
}

function writeOther(path) {
  if (path.endsWith(".svg")) {
    mkdirSync(dirname(join(target, path)), { recursive: true });
    cpSync(join(root, path), join(target, path));
    return;
  }
  const files = isFolder(path)
    ? readdirSync(join(root, path), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile() && !entry.name.endsWith(".md"))
        .map((entry) => posix.relative(root, join(entry.parentPath, entry.name)))
        .sort()
    : [path];
  const parts = files.map((file) => `<h2>${escaped(file)}</h2>\n<pre><code>${escaped(read(file))}</code></pre>`);
  write(pageOf(path), { title: path, body: `<h1>${escaped(path)}</h1>\n${parts.join("\n")}` });
}

if (given === undefined) rmSync(target, { recursive: true, force: true });
else if (existsSync(target) && readdirSync(target).length > 0) throw new Error(`${target} is not empty`);
for (const path of PAGES) writeDocument(path);
for (const path of others) writeOther(path);
cpSync(join(root, "scripts/site.css"), join(target, "style.css"));
cpSync(join(root, "scripts/site-search.js"), join(target, "search.js"));
writeFileSync(join(target, "search-index.js"), `globalThis.searchIndex = ${JSON.stringify(searched)};\n`);
console.log(`${PAGES.length} documents and ${others.size} files they link to: ${join(target, "index.html")}`);
