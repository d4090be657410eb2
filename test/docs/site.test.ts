/** `npm run site`: every document is a page, every page is reached from the first one, and every link leads somewhere. */
import assert from "node:assert/strict";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { after, before, describe, test } from "node:test";
import { runCommand } from "../../testkit/net/run-command.ts";
import { anchorsOf, CHECKOUT, markdownFiles } from "./markdown.ts";

describe("the site", () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-site-"));
  after(() => rmSync(folder, { recursive: true }));
  before(async () => {
    await runCommand([process.execPath, join(CHECKOUT, "scripts/site.mjs"), folder]);
  });
  const pages = () => globSync("**/*.html", { cwd: folder });
  const html = (page: string) => readFileSync(join(folder, page), "utf8");
  const idsOf = (page: string) => new Set([...html(page).matchAll(/ id="([^"]*)"/g)].map(([, id]) => id));
  const pageOf = (document: string) => document.replace(/README\.md$/, "index.md").replace(/\.md$/, ".html");

  test("has a page for each document, with the anchors that GitHub has", () => {
    for (const document of markdownFiles().filter((path) => !path.startsWith("."))) {
      const ids = idsOf(pageOf(document));
      for (const anchor of anchorsOf(document)) assert.ok(ids.has(anchor), `${document}#${anchor}`);
    }
  });

  test("links to what is there, and from the first page, by any way, to all", () => {
    const reached = new Set(["index.html"]);
    for (const page of reached) {
      for (const [, href = ""] of html(page).matchAll(/ (?:href|src)="([^"]*)"/g)) {
        if (/^[a-z]+:/.test(href)) continue;
        const [way = "", anchor] = href.replaceAll("&amp;", "&").split("#");
        const found = way === "" ? page : normalize(join(dirname(page), way));
        assert.ok(existsSync(join(folder, found)) && statSync(join(folder, found)).isFile(), `${page}: ${href}`);
        if (anchor !== undefined) assert.ok(idsOf(found).has(anchor), `${page}: ${href}`);
        if (found.endsWith(".html")) reached.add(found);
      }
    }
    assert.deepEqual(
      pages().filter((page) => !reached.has(page)),
      [],
    );
  });

  test("shows its text without scripts but that of the search, and asks nothing of others", () => {
    for (const page of pages()) {
      const text = html(page).replace(/<script defer src="(?:\.\.\/)*search\.js"><\/script>/, "");
      assert.match(text, /<title>[^<]+ · kube-proxy-ts<\/title>/, page);
      assert.doesNotMatch(text, /<script|<(?:img|link)[^>]* (?:src|href)="[a-z]+:/, page);
      assert.doesNotMatch(html(page), / href="(?![a-z]+:)[^"]*\.md["#]/, page);
    }
  });

  test("is read from page to page, each way", () => {
    const way = ["index.html"];
    for (const page of way) {
      const [, next] = / rel="next" href="([^"]*)"/.exec(html(page)) ?? [];
      if (next === undefined) continue;
      const found = join(dirname(page), next);
      const [, back = ""] = / rel="prev" href="([^"]*)"/.exec(html(found)) ?? [];
      assert.equal(join(dirname(found), back), page);
      assert.ok(!way.includes(found), `twice: ${found}`);
      way.push(found);
    }
    assert.ok(way.length > 30, `${way.length} pages`);
  });

  test("has every section of every document in its search", () => {
    const [, json = ""] =
      /^globalThis\.searchIndex = (.*);$/m.exec(readFileSync(join(folder, "search-index.js"), "utf8")) ?? [];
    const sections: readonly { page: string; anchor: string; heading: string; text: string }[] = JSON.parse(json);
    for (const document of markdownFiles().filter((path) => !path.startsWith("."))) {
      const own = sections.filter(({ page }) => page === pageOf(document));
      const anchors = new Set(own.map(({ anchor }) => anchor));
      for (const anchor of anchorsOf(document)) assert.ok(anchors.has(anchor), `${document}#${anchor}`);
      for (const { heading, text } of own)
        assert.doesNotMatch(`${heading} ${text}`, /<\/(?:code|a|td|p)>|&(?:lt|amp);/, document);
    }
  });
});
