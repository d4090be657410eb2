/** The page in a real browser: what people see, hear and type, in light and dark, wide and narrow. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import { after, before, describe, type TestContext, test } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import type { BrowserPage } from "../../testkit/browser/browser-page.ts";
import { Chromium, skipWithoutChromium } from "../../testkit/browser/chromium.ts";
import { until } from "../../testkit/support/patience.ts";
import { FLOWS, items, manyServices, TROUBLE, thousandEndpoints, VIEWS, WEB, WIDEST } from "./page-cases.ts";
import { type PageOptions, type ServedPage, servedPage, syncRecord } from "./page-daemon.ts";

const portOf = (server: Server) => Object(server.address()).port as number;

describe("the page in Chromium", { skip: await skipWithoutChromium() }, () => {
  let chromium: Chromium;
  before(async () => {
    chromium = await Chromium.start();
  });
  after(async () => {
    await chromium[Symbol.asyncDispose]();
  });

  async function opened(t: TestContext, view = "", options: Partial<PageOptions> = {}) {
    const served = await servedPage(t, { items, flows: FLOWS, ...options });
    const page = await chromium.page();
    t.after(() => page.close());
    await page.goto(`${served.url}#/${view}`);
    return { ...served, page };
  }

  /** Nothing was asked of others, and nothing went wrong. */
  function assertClean({ complaints, requests }: BrowserPage, { url }: Pick<ServedPage, "url">): void {
    assert.deepEqual(complaints, []);
    assert.deepEqual(
      requests.filter((asked) => !asked.startsWith(url) && asked !== "about:blank"),
      [],
    );
  }

  test("the front says in a sentence and five numbers how the node is, what is wrong first, and one key leads to the reason", async (t) => {
    const { page, url, journal } = await opened(t, "", { ...TROUBLE, silentMs: 3000 });
    journal.add(syncRecord({ endedMs: Date.now() }));
    await page.until("document.querySelector('.tiles')");
    assert.equal(await page.text("h1"), "3 of 13 Services get no answer");
    await page.until("document.querySelector('.tiles').innerText.includes('2.6 ms')");
    assert.deepEqual(await page.evaluate("[...document.querySelectorAll('.tiles strong')].map((e) => e.textContent)"), [
      "3",
      await page.evaluate("document.querySelectorAll('.tiles strong')[1].textContent"),
      ...["–", "0 · 0", "3 s"],
    ]);
    assert.match(await page.text(".tiles"), /Connection tracking\s+–\s+the kernel does not say/);
    assert.match(
      await page.text(".wrong li"),
      /office\/legacy:http\s+Its only endpoint is neither ready nor still serving/,
    );
    // The gravest Service is the first square.
    await page.evaluate("document.querySelector('[role=application]').focus()");
    await page.until("document.querySelector('#square').textContent === 'office/legacy: no answer'");
    await page.press("Enter");
    await page.until("document.querySelector('h1').textContent === 'office/legacy:http/TCP'");
    assertClean(page, { url });
  });

  test("with nothing wrong the front says what was looked at", async (t) => {
    const { page } = await opened(t, "", { items: [], tracking: { entries: 1, max: 4 } });
    await page.until("document.querySelector('.tiles')");
    assert.equal(await page.text("h1"), "This node serves no Services yet");
    assert.match(await page.text("main .facts"), /^Looked at: the endpoints of no Services/);
    assert.match(await page.text(".tiles"), /Last change\s+–\s+no sync yet\s+Connection tracking\s+25 %/);
  });

  test("services are searched as one types, and opened with the keyboard alone", async (t) => {
    const { page, url } = await opened(t, "services");
    await page.until("document.querySelectorAll('tbody tr').length > 10");
    assert.equal(await page.text("[role=status].count"), "15 service ports");
    await page.evaluate("document.querySelector('#search').focus()");
    await page.type("shop/web:");
    await page.until("document.querySelector('.count').textContent === '1 of 15 service ports'");
    // Behind the namespaces and the five headings that sort.
    for (let presses = 0; presses < 8; presses += 1) {
      if (await page.evaluate("document.activeElement.matches('tbody a')")) break;
      await page.press("Tab");
    }
    await page.press("Enter");
    await page.until("document.querySelector('h1').textContent === 'shop/web:http/TCP'");
    assert.equal(await page.evaluate("document.activeElement.id"), "main");
    assert.equal(await page.evaluate("document.querySelector('nav [aria-current=page]').textContent"), "Services");
    assertClean(page, { url });
  });

  test("services are sorted by a heading, with the keyboard, and the URL keeps how", async (t) => {
    const { page, url } = await opened(t, "services");
    await page.look(390, 800, "light");
    await page.until("document.querySelectorAll('tbody tr').length > 10");
    const sorted = (direction: string) =>
      page.until(`document.querySelector('[aria-sort=${direction}]')?.innerText.startsWith('State')`);
    await page.evaluate("document.querySelector('thead th:nth-child(5) button').focus()");
    await page.press("Enter");
    await sorted("ascending");
    await page.press("Enter");
    await sorted("descending");
    await page.until("document.querySelector('tbody .badge').textContent !== 'answers'");
    assert.equal(await page.evaluate("location.hash"), "#/services?sort=-state");
    assert.equal(await page.evaluate("document.activeElement.textContent"), "State ↓");
    assert.match(await page.text("tbody tr"), /ClusterIP|NodePort|LoadBalancer/);
    assertClean(page, { url });
  });

  test("Enter opens the only hit, ? lists the keys, j and k go from entry to entry", async (t) => {
    const { page, url } = await opened(t, "services");
    await page.until("document.querySelectorAll('tbody tr').length > 10");
    await page.press("j");
    await page.press("j");
    await page.press("k");
    assert.equal(
      await page.evaluate("document.activeElement === document.querySelector('tbody a')"),
      true,
      await page.evaluate("document.activeElement.outerHTML"),
    );
    await page.press("?");
    await page.until("document.querySelector('dialog').open");
    await page.evaluate("document.querySelector('dialog button').click()");
    await page.until("!document.querySelector('dialog').open");
    await page.press("/");
    await page.type("web: shop");
    await page.press("Enter");
    await page.until("document.querySelector('h1').textContent === 'shop/web:http/TCP'");
    assertClean(page, { url });
  });

  test("a page that came from another program than the daemon is now offers to be loaded again", async (t) => {
    const { page, url, end } = await opened(t, "");
    await page.until("document.querySelector('.tiles')");
    await end();
    await servedPage(t, { items, port: Number(new URL(url).port), startedMs: 2, program: "kube-proxy-ts 1.3.0" });
    await page.until("document.querySelector('.banner button')");
    await page.evaluate("document.querySelector('.banner button').click()");
    await page.until("document.querySelector('.tiles') && !document.querySelector('.banner')");
  });

  test("a thousand endpoints: by node, a page at a time, in a picture whose text can be read", async (t) => {
    const { page, url } = await opened(t, WEB, { items: thousandEndpoints() });
    await page.until("document.querySelector('svg.picture')");
    const { scale, height, rows } = await page.evaluate<Record<string, number>>(
      "({ scale: document.querySelector('svg.picture').getScreenCTM().a, height: document.documentElement.scrollHeight, rows: document.querySelectorAll('tbody tr').length })",
    );
    assert.ok(Number(scale) > 0.6 && Number(height) < 4_000 && rows === 40, `${scale} ${height} ${rows}`);
    assert.match(await page.text("main"), /1 to 20 of 1000/);
    await page.evaluate("[...document.querySelectorAll('.pages button')].at(-1).click()");
    await page.until("document.body.innerText.includes('21 to 40 of 1000')");
    await page.evaluate(
      "const s = document.querySelector('main select'); s.value = 'zone'; s.dispatchEvent(new Event('change'))",
    );
    await page.until("document.querySelector('svg.picture').textContent.includes('zone-1250 endpoints, 245 used')");
    assert.match(await page.text(".scroll tbody"), /zone-1\s+250\s+245\s+25 %/);
    assertClean(page, { url });
  });

  test("the address has search, namespace and page; the way back leads to them, and / to the search", async (t) => {
    const { page, url } = await opened(t, "syncs");
    await page.until("document.querySelector('h1').textContent === 'Syncs'");
    await page.press("/");
    await page.until("document.activeElement.id === 'search'");
    await page.type("web/");
    await page.until("location.hash === '#/services?search=web%2F'");
    await page.evaluate(
      "const q = document.querySelector('#search'); q.value = 'http'; q.dispatchEvent(new Event('input'))",
    );
    // The namespaces come with the first answer.
    await page.until("[...document.querySelector('#namespace').options].some(({ value }) => value === 'office')");
    await page.evaluate(
      "const s = document.querySelector('#namespace'); s.value = 'office'; s.dispatchEvent(new Event('change'))",
    );
    await page.until("document.querySelector('.count').textContent.startsWith('1 of 15')");
    assert.equal(await page.evaluate("location.hash"), "#/services?search=http&namespace=office");
    await page.evaluate("document.querySelector('tbody a').click()");
    await page.until("document.title === 'office/legacy:http/TCP · kube-proxy'");
    await page.evaluate("history.back()");
    await page.until("document.querySelector('.count')?.textContent.startsWith('1 of 15')");
    assert.deepEqual(
      await page.evaluate("[document.querySelector('#search').value, document.querySelector('#namespace').value]"),
      ["http", "office"],
    );
    await page.evaluate("location.hash = '#/service?key=no/such/TCP'");
    await page.until("document.querySelector('[role=alert]')");
    assert.equal(await page.evaluate("document.querySelector('.count-bar button').disabled"), true);
    const others = page.complaints.filter((text) => !/status of 404/.test(text));
    assertClean({ complaints: others, requests: page.requests } as BrowserPage, { url });
  });

  test("endpoints have the names of their pods, and whole addresses, in a row or a block of lines", async (t) => {
    const { page } = await opened(t, WEB);
    await page.until("document.querySelector('svg.picture')");
    assert.match(await page.text(".endpoints tbody"), /10\.180\.0\.11:8080\s+shop\/web-1\s+node-a \(here\)/);
    for (const width of [400, 1280]) {
      await page.look(width, 800, "light");
      const heights =
        "[...document.querySelectorAll('.scroll code, .addresses code')].map((e) => e.getClientRects().length)";
      assert.deepEqual([...new Set(await page.evaluate<number[]>(heights))], [1]);
    }
    await page.look(400, 800, "light");
    const cut =
      "[...document.querySelectorAll('.endpoints')].filter((e) => e.scrollWidth > e.parentElement.clientWidth).length";
    assert.equal(await page.evaluate(cut), 0);
    const folder = process.env.KPTS_SCREENSHOTS;
    if (folder === undefined) return;
    await page.evaluate("document.querySelector('.endpoints').scrollIntoView()");
    writeFileSync(`${folder}/endpoints-400.png`, await page.screenshot());
  });

  test("one service: the picture has its addresses, policies, endpoints and shares, and the list says why", async (t) => {
    const { page } = await opened(t, WEB);
    await page.until("document.querySelector('svg.picture')");
    const picture = await page.evaluate<string>("document.querySelector('svg.picture').textContent");
    for (const part of [
      "cluster IP 10.96.0.10:80",
      "Cluster policy",
      "3 of 3 endpoints",
      "10.180.1.11:8080",
      "33.3 %",
    ]) {
      assert.ok(picture.includes(part), `${part} in ${picture}`);
    }
    assert.match(await page.text("main"), /Every client gets an answer\..*a pod here, this node\s+answered/s);
    await page.evaluate(
      "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Count connections').click()",
    );
    await page.until("document.querySelector('h4').textContent.includes('; 7 open')");
    const counted = await page.evaluate<string>("document.querySelector('svg.picture').textContent");
    assert.ok(counted.includes("web-2, node-a, ready, 1 open, 41 counted"), counted);
    assert.match(await page.text(".scroll tbody"), /10\.180\.0\.12:8080.*1 open, 41 counted/s);
    assert.match(await page.text(".count-bar"), /Only open connections are known\./);
    assert.deepEqual(await page.evaluate("[...document.querySelectorAll('figcaption')].map((e) => e.textContent)"), [
      ...["Share of connections, planned and measured", "Who talks to whom: 3 open connections"],
      ...["Share of connections, planned and measured", "Who talks to whom"],
    ]);
    await page.evaluate("for (const one of document.querySelectorAll('figure details')) one.open = true");
    const row = (figure: number) =>
      `[...document.querySelectorAll('figure')[${figure}].querySelector('tbody tr').children].map((e) => e.textContent)`;
    assert.deepEqual(await page.evaluate(row(0)), ["shop/web-1", "40", "32.5 %", "33.3 %", "25 % to 41.7 %"]);
    assert.deepEqual(await page.evaluate(row(1)), ["10.180.0.9", "shop/web-1", "3"]);
    for (const [width, scheme] of [
      [390, "dark"],
      [1600, "light"],
    ] as const) {
      await page.look(width, 800, scheme);
      assert.deepEqual(await page.evaluate(LOW_CONTRAST), [], scheme);
      const excess = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
      assert.equal(await page.evaluate(excess), 0, await page.evaluate(WIDEST));
    }
    await page.evaluate("[...document.querySelectorAll('details')].at(-1).open = true");
    await page.until("document.querySelector('pre')?.innerText.startsWith('apiVersion: v1\\nkind: Service\\n')");
    assert.match(await page.text("pre"), /\n---\napiVersion: discovery\.k8s\.io\/v1\nkind: EndpointSlice\n/);
    await page.evaluate("document.querySelector('a.follow').click()");
    await page.until("document.querySelector('.steps .fate')");
    assert.match(await page.text(".outcomes"), /33\.3 %\s+sent to 10\.180\.0\.11:8080/);
  });

  test("connections are shown with names, searched, and asked for only while they are looked at", async (t) => {
    const { page, url, journal } = await opened(t, "connections");
    await page.until("document.querySelectorAll('main table')[1]?.tBodies[0].rows.length === 3");
    assert.equal(await page.text("[role=status].count"), "3 connections");
    const first = "[...document.querySelector('main details tbody tr').children].map((cell) => cell.textContent)";
    assert.deepEqual(await page.evaluate(first), [
      ...["shop/web:http TCP", "10.180.0.9:4000", "10.96.0.10:80", "10.180.0.11:8080 (shop/web-1)", "ESTABLISHED"],
      "900 B in 9",
    ]);
    // What the kernel does not count is a sentence, with the setting that has it counted.
    const said = await page.evaluate("document.querySelector('main details').textContent");
    assert.match(
      String(said),
      /Not known: .*received.*net\.netfilter\.nf_conntrack_acct=1.*off by default; together they cost .* µs/s,
    );
    const counts =
      "[...document.querySelectorAll('main table')[0].tBodies[0].rows].map((row) => row.innerText.split(/\\s+/).join(' '))";
    assert.deepEqual(await page.evaluate(counts), ["shop/web:http TCP IPv4 3 2 1"]);
    await page.evaluate("document.querySelector('#search').focus()");
    await page.type("syn_sent");
    await page.until("document.querySelector('.count').textContent === '1 of 3 connections'");
    assert.equal(await page.evaluate("location.hash"), "#/connections?search=syn_sent");
    const asked = () => page.requests.filter((one) => one.includes("api/connections")).length;
    const before = asked();
    await until("the next question", async () => asked() > before);
    await page.evaluate("location.hash = '#/node'");
    await page.until("document.querySelector('h1').textContent !== 'Connections'");
    const after = asked();
    // Each view asks for the state by itself: after two of its questions those of the view before would have come.
    const states = () => page.requests.filter((one) => one.includes("api/state")).length;
    const then = states();
    await until("a question for the state that is held", async () => states() >= then + 1);
    journal.add(syncRecord());
    await until("two questions for the state", async () => states() >= then + 2);
    assert.equal(asked(), after);
    assertClean(page, { url });
  });

  test("a packet's way is asked for in a form; what cannot be used is said", async (t) => {
    const { page } = await opened(t, "trace");
    await page.until("document.querySelector('#to')");
    await page.evaluate("document.querySelector('#to').focus()");
    await page.type("10.96.0.70");
    await page.press("Tab");
    await page.type("80");
    await page.press("Enter");
    await page.until("document.querySelector('.fate.bad')");
    assert.match(await page.text(".fate.bad"), /refused/);
    // A name may have its port, which the form then does not need.
    await page.evaluate(
      "document.querySelector('#port').value = ''; document.querySelector('#to').value = 'web.shop:http'",
    );
    await page.evaluate("document.querySelector('button.main').click()");
    await page.until("document.querySelector('.outcomes')?.innerText.includes('10.180.0.11:8080')");
    assert.match(
      await page.evaluate("document.querySelector('svg.picture').textContent"),
      /an address of shop\/web:http/,
    );
    await page.evaluate("location.hash = '#/trace?from=pod&to=nowhere&port=80'");
    await page.until("document.querySelector('[role=alert]')");
    assert.match(await page.text("[role=alert]"), /There is no Service "nowhere" here/);
  });

  test("what happens is shown as it happens, and that the daemon has gone", async (t) => {
    const { page, journal, states, end } = await opened(t, "syncs");
    await page.until("document.querySelector('.count')?.textContent === 'None yet.'");
    journal.add(syncRecord({ causes: [{ kind: "repair", servicePorts: null, by: "nft" }] }));
    await page.until("document.querySelector('.syncs .repair')?.innerText.includes('our rules destroyed by nft')");
    await page.evaluate(`location.hash = ${JSON.stringify(`#/${WEB}`)}`);
    await page.until("document.querySelector('svg.picture')");
    const [ipv4] = states;
    ipv4?.onEndpointSlice({
      kind: "add",
      object: {
        ...{ namespace: "shop", name: "web-more", serviceName: "web", addressType: "IPv4", resourceVersion: "1" },
        ...{ ports: [{ name: "http", protocol: "TCP", port: 8080 }], lastChangeTriggerTime: "" },
        endpoints: [
          {
            ...{ address: "10.180.1.99" as never, nodeName: "node-b", ready: true, serving: true, terminating: false },
            ...{ zoneHints: undefined, nodeHints: undefined },
          },
        ],
      },
    });
    ipv4?.applyChanges();
    journal.add(syncRecord());
    await page.until("document.querySelector('svg.picture').textContent.includes('10.180.1.99:8080')");
    await end();
    await page.until("document.querySelector('#health').textContent.startsWith('No answer')");
  });

  test("a daemon that was started again has services and syncs of its own, though as many", async (t) => {
    const repairedBy = (by: string) => syncRecord({ causes: [{ kind: "repair", servicePorts: null, by }] });
    const { page, journal, url, end } = await opened(t, "services");
    journal.add(repairedBy("before"));
    await page.until("document.querySelectorAll('tbody tr').length > 3");
    await page.until("document.querySelector('#health').textContent === 'Daemon healthy'");
    await end();
    await page.until("document.querySelector('#health').textContent.startsWith('No answer')");
    const again = await servedPage(t, { items: [], port: Number(new URL(url).port), startedMs: 2 });
    again.journal.add(repairedBy("after"));
    await page.until("document.querySelector('.count').textContent === '0 service ports'");
    await page.evaluate("location.hash = '#/syncs'");
    await page.until("document.querySelector('.syncs .repair')?.innerText.includes('by after')");
    assert.equal(await page.evaluate("document.querySelectorAll('.syncs > li').length"), 1);
    // A time of another day has its date.
    assert.match(await page.text(".syncs time"), /2026/);
  });

  test("a logged problem that is over says so and since when, and no other does", async (t) => {
    const problem = { severity: "warning", details: "", count: 2, firstMs: 0, lastMs: 0 } as const;
    const problems = [
      { ...problem, message: "No sets", overMs: 60_000 },
      { ...problem, message: "Slow" },
    ];
    const { page, url } = await opened(t, "node", { problems });
    await page.until("document.querySelectorAll('.problems li').length === 2");
    const texts = await page.evaluate<string[]>(
      "[...document.querySelectorAll('.problems li')].map((e) => e.innerText)",
    );
    assert.match(texts[0] ?? "", /warning over .*, 2 times, over since .*\s+No sets/);
    assert.doesNotMatch(texts[1] ?? "", /over/);
    assertClean(page, { url });
  });

  test("names in sentences are links: of pods, nodes and Services, by whole words, and with the keyboard", async (t) => {
    const node = "node-a";
    const web = { failures: [{ subject: "shop/web:http", reason: "no space" }] };
    const problem = { severity: "error", message: "Refused", count: 1, firstMs: 0, lastMs: 0 } as const;
    const details = "service=shop/web:http, err=shop/web:https";
    const { page, url, states, journal } = await opened(t, WEB, {
      ...web,
      problems: [{ ...problem, details, service: "shop/web:http" }],
    });
    const why = "since noon: shop/web-10 and shop/web-1: no answer";
    states[0]?.leaveOut(new Map([["shop/web:http/TCP", new Map([["10.180.1.11:8080", why]])]]));
    states[0]?.applyChanges();
    journal.add(syncRecord({ result: "refused", ...web }));
    const links = (where: string) =>
      page.evaluate<string[]>(
        `[...document.querySelectorAll(${JSON.stringify(where)})].map((e) => e.textContent + " " + e.getAttribute("href"))`,
      );
    await page.until("document.querySelector('.out a')");
    assert.match(
      await page.text(".sentence.bad"),
      /^The kernel has refused its rules \(no space\), so it is not known what clients meet\. As planned: Every client/,
    );
    assert.deepEqual(await links(".out a"), [`${node} #/node`, "shop/web-1 #/services?search=web-1"]);
    assert.match(
      await page.text(".out"),
      /left out: node-a leaves it out: since noon: shop\/web-10 and shop\/web-1: no/,
    );
    for (const [view, where] of [
      ["syncs", ".failures a"],
      ["node", ".problems small a"],
      ["node", ".decisions a"],
    ] as const) {
      await page.evaluate(`location.hash = "#/${view}"`);
      await page.until(`document.querySelector(${JSON.stringify(where)})`);
      const [first] = await links(where);
      assert.match(first ?? "", /^shop\/web:http(?:\/TCP)? #\/services\?search=shop%2Fweb%3Ahttp(?:%2FTCP)?$/, view);
    }
    await page.evaluate('location.hash = "#/trace?from=shop/web-1&to=shop/web&port=80&protocol=tcp"');
    await page.until("document.querySelector('.outcomes')");
    assert.deepEqual(await links("[aria-live] .facts a"), [
      "node-a #/node",
      "shop/web:http #/services?search=shop%2Fweb%3Ahttp",
      "shop/web-1 #/services?search=web-1",
      "node-a #/node",
    ]);
    await page.evaluate('location.hash = "#/node"');
    await page.until("document.querySelector('.problems small a')");
    assert.equal((await links(".problems small a")).length, 1);
    await page.evaluate("document.querySelector('.problems small a').focus()");
    await page.press("Enter");
    await page.until("document.querySelector('.count')?.textContent.startsWith('1 of 15')");
    assertClean(page, { url });
  });

  test("hostile texts are shown and never obeyed, wherever they come from", async (t) => {
    const evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e\u001b[31m';
    const { page, journal, url } = await opened(t, "node", {
      failures: [{ subject: evil, reason: evil }],
      limits: [{ what: evil, why: evil }],
      problems: [{ severity: "error", message: evil, details: evil, count: 1, firstMs: 0, lastMs: 0 }],
    });
    const isShown = "document.querySelector('main').textContent.includes('<img src=x onerror=')";
    await page.until(`${isShown} && document.querySelector('.problems li')`);
    journal.add(
      syncRecord({
        causes: [
          { kind: "repair", servicePorts: 1, by: evil },
          { kind: "object", object: "Service", change: "add", namespace: evil, name: evil, service: evil },
        ],
        result: "refused",
        failures: [{ subject: evil, reason: evil }],
        written: { [evil]: 1 },
      }),
    );
    await page.evaluate("location.hash = '#/syncs'");
    await page.until(`document.querySelector('.syncs .trouble') && ${isShown}`);
    for (const view of [
      `service?${new URLSearchParams({ key: evil })}`,
      `trace?${new URLSearchParams({ from: evil, to: evil, port: evil })}`,
      `services?${new URLSearchParams({ search: evil })}`,
    ]) {
      await page.evaluate(`location.hash = ${JSON.stringify(`#/${view}`)}`);
      await page.until("document.querySelector('[role=alert], .empty')");
    }
    assert.deepEqual(
      await page.evaluate("[window.hacked ?? null, document.querySelectorAll('main img, main script').length]"),
      [null, 0],
    );
    // What a question was refused for is no error of the page.
    const others = page.complaints.filter((text) => !/status of 40[04]/.test(text));
    assertClean({ complaints: others, requests: page.requests } as BrowserPage, { url });
  });

  test("names that are written from right to left move nothing beside them", async (t) => {
    const hebrew = "שלום";
    const { page, url, journal } = await opened(t, "node", {
      problems: [{ severity: "error", message: `${hebrew}: 80`, details: "", count: 1, firstMs: 0, lastMs: 0 }],
    });
    await page.until("document.querySelector('.problems li')");
    /** Where the name and the number after it begin, from the left. */
    const lefts = (selector: string) =>
      `(() => {
        const walker = document.createTreeWalker(document.querySelector(${JSON.stringify(selector)}), NodeFilter.SHOW_TEXT);
        const found = {};
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
          for (const part of [${JSON.stringify(hebrew)}, "80"]) {
            const at = node.data.indexOf(part);
            if (at < 0) continue;
            const range = document.createRange();
            range.setStart(node, at);
            range.setEnd(node, at + part.length);
            found[part] = range.getBoundingClientRect().left;
          }
        }
        return [found[${JSON.stringify(hebrew)}], found["80"]];
      })()`;
    for (const width of [390, 1600]) {
      await page.look(width, 800, "light");
      const [name, number] = await page.evaluate<number[]>(lefts(".problems li p:nth-child(2)"));
      assert.ok(Number(name) < Number(number), `${width}: ${name} ${number}`);
    }
    assert.equal(await page.text(".problems li p:nth-child(2)"), `${hebrew}: 80`);
    journal.add(syncRecord({ causes: [{ kind: "repair", servicePorts: null, by: `${hebrew}: 80` }] }));
    await page.evaluate("location.hash = '#/syncs'");
    await page.until("document.querySelector('.syncs .causes bdi')");
    const [name, number] = await page.evaluate<number[]>(lefts(".syncs .causes"));
    assert.ok(Number(name) < Number(number), `${name} ${number}`);
    assertClean(page, { url });
  });

  test("screen readers and keyboards: landmarks, headings in order, names for all that can be used", async (t) => {
    const { page, journal, url } = await opened(t, "node", TROUBLE);
    journal.add(syncRecord());
    for (const [view, ready] of VIEWS) {
      await page.evaluate(`location.hash = ${JSON.stringify(`#/${view}`)}`);
      await page.until(ready);
      const nodes = await page.accessible();
      for (const role of ["main", "navigation", "banner"]) {
        assert.equal(nodes.filter((node) => node.role === role).length, 1, `${view}: ${role}`);
      }
      const levels = nodes.filter(({ role }) => role === "heading").map(({ level = 0 }) => level);
      assert.equal(levels[0], 1, view);
      for (const [index, level] of levels.entries()) {
        assert.ok(level <= (levels[index - 1] ?? 0) + 1, `${view}: heading levels ${levels.join()}`);
      }
      const controls = [
        "link",
        "button",
        "textbox",
        "searchbox",
        "combobox",
        "checkbox",
        "spinbutton",
        "group",
        "image",
      ];
      const nameless = nodes.filter(
        ({ role, name, isFocusable }) => (isFocusable || role === "image") && controls.includes(role) && name === "",
      );
      assert.deepEqual(nameless, [], view);
    }
    assertClean(page, { url });
  });

  for (const scheme of ["light", "dark"] as const) {
    test(`${scheme}, wide and narrow: texts have contrast, and nothing is wider than the window`, async (t) => {
      const { page, journal } = await opened(t, "node", TROUBLE);
      journal.add(syncRecord({ result: "refused", failures: [{ subject: "shop/web", reason: "no space" }] }));
      journal.add(syncRecord({ causes: [{ kind: "repair", servicePorts: 2, by: "nft" }] }));
      for (const width of [360, 1280]) {
        await page.look(width, 800, scheme);
        for (const [view, ready] of VIEWS) {
          await page.evaluate(`location.hash = ${JSON.stringify(`#/${view}`)}`);
          await page.until(ready);
          const folder = process.env.KPTS_SCREENSHOTS;
          if (folder !== undefined) {
            writeFileSync(`${folder}/${scheme}-${width}-${view.split("?")[0]}.png`, await page.screenshot());
          }
          assert.deepEqual(await page.evaluate(LOW_CONTRAST), [], view);
          const excess = "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)";
          assert.equal(await page.evaluate(excess), 0, `${view} at ${width}: ${await page.evaluate(WIDEST)}`);
        }
      }
    });
  }

  test("names of 63 characters fit a telephone", async (t) => {
    const name = "n".repeat(63);
    const metadata = { namespace: name, name };
    const targetRef = { kind: "Pod", ...metadata };
    const { page } = await opened(t, "services", {
      items: [
        { apiVersion: "v1", kind: "Node", metadata: { name: "node-a" }, spec: { podCIDRs: ["10.180.0.0/24"] } },
        {
          ...{ apiVersion: "v1", kind: "Service", metadata },
          spec: { clusterIP: "10.96.0.10", ports: [{ port: 80 }] },
        },
        {
          ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", ports: [{ port: 8080 }] },
          metadata: { ...metadata, labels: { "kubernetes.io/service-name": name } },
          endpoints: [{ addresses: ["10.180.0.11"], nodeName: name, zone: name, targetRef }],
        },
      ],
      failures: [{ subject: `${name}/${name}`, reason: "no space" }],
    });
    await page.look(390, 800, "light");
    for (const [view, ready] of [
      ["front", "document.querySelector('.wrong li')"],
      ["services", "document.querySelector('tbody tr')"],
      [`service?key=${name}%2F${name}%2FTCP`, "document.querySelector('svg.picture')"],
      ["trace?from=pod&to=10.96.0.10&port=80", "document.querySelector('.fate')"],
      ["connections", "document.querySelector('main details')"],
      ["node", "document.querySelector('.decisions li')"],
    ] as const) {
      await page.evaluate(`location.hash = "#/${view}"`);
      await page.until(ready);
      if (view.startsWith("service?")) {
        await page.evaluate("document.querySelector('.count-bar button').click()");
        await page.until("document.querySelectorAll('figure').length === 2");
      }
      await page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true");
      const excess = "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)";
      assert.equal(await page.evaluate(excess), 0, `${view}: ${await page.evaluate(WIDEST)}`);
    }
  });

  test("a browser that does not know light-dark() shows texts, pictures and bars", async (t) => {
    const { page } = await opened(t, WEB);
    await page.until("document.querySelector('svg.picture')");
    await page.evaluate(WITHOUT_LIGHT_DARK);
    for (const scheme of ["light", "dark"] as const) {
      await page.look(1280, 800, scheme);
      assert.deepEqual(await page.evaluate(LOW_CONTRAST), [], scheme);
      const fill = (selector: string) => `getComputedStyle(document.querySelector("${selector}")).fill`;
      assert.notEqual(await page.evaluate(fill(".picture text")), await page.evaluate(fill(".picture .box")), scheme);
    }
    const parts = ["waited", "model", "rules", "kernel", "after", "bad"];
    const color = "(part) => getComputedStyle(document.documentElement).getPropertyValue('--' + part)";
    const colors = await page.evaluate<string[]>(`${JSON.stringify(parts)}.map(${color})`);
    for (const one of colors) assert.match(one, /^#[0-9a-f]{3,6}$/);
  });

  test("through the API server, names of other nodes lead to their pages", async (t) => {
    const { page, url } = await opened(t, WEB);
    await page.until("document.querySelector('.endpoints td')");
    assert.equal(await page.evaluate(`document.querySelectorAll('.endpoints a:not([href^="#"])').length`), 0);
    const nodes = /^\/api\/v1\/nodes\/node-[ab]:10260\/proxy\/(.*)$/;
    const server = createServer((asked, response) => {
      const [, path] = nodes.exec(asked.url ?? "") ?? [];
      const { headers } = asked;
      const forwarded = request(`${url}${path}`, { headers }, (from) => {
        response.writeHead(path === undefined ? 404 : (from.statusCode ?? 502), from.headers);
        from.pipe(response);
      });
      // The page asks on while the test ends.
      forwarded.on("error", () => response.destroy()).end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => server.close());
    const pageOf = (node: string) => `http://127.0.0.1:${portOf(server)}/api/v1/nodes/${node}:10260/proxy/#/${WEB}`;
    await page.goto(pageOf("node-a"));
    await page.until(`document.querySelector('.endpoints a:not([href^="#"])')`);
    assert.equal(await page.evaluate(`document.querySelector('.endpoints a:not([href^="#"])').href`), pageOf("node-b"));
    assert.equal(await page.text('.endpoints a:not([href^="#"])'), "node-b");
    await page.evaluate(`document.querySelector('.endpoints a:not([href^="#"])').click()`);
    await page.until(
      `location.href === ${JSON.stringify(pageOf("node-b"))} && document.querySelector('.endpoints td')`,
    );
    assert.deepEqual(page.complaints, []);
  });

  test("a page of the table that is no more is the last one that there is", async (t) => {
    const many = manyServices(150);
    const { page, states, journal } = await opened(t, "services", { items: many });
    await page.until("document.querySelector('.count').textContent === '150 service ports, 1 to 100 shown'");
    await page.evaluate("document.querySelector('.pages button:last-child').click()");
    await page.until("document.querySelector('.count').textContent === '150 service ports, 101 to 150 shown'");
    const { services } = projectObjects([{ apiVersion: "v1", kind: "List", items: many.slice(0, 100) }]);
    for (const object of services) states[0]?.onService({ kind: "delete", object });
    states[0]?.applyChanges();
    journal.add(syncRecord());
    await page.until("document.querySelector('.count').textContent === '50 service ports'");
    assert.equal(await page.evaluate("document.querySelectorAll('tbody th a').length"), 50);
  });

  test("ten thousand services: a part of them is in the document, and the next is a key away", async (t) => {
    const many = manyServices(10_000);
    const { page } = await opened(t, "services", { items: many });
    await page.until("document.querySelector('.count').textContent === '10000 service ports, 1 to 100 shown'");
    assert.ok((await page.evaluate<number>("document.querySelectorAll('*').length")) < 2_000);
    await page.evaluate("document.querySelector('.pages button:last-child').focus()");
    await page.press("Enter");
    await page.until("document.querySelector('.count').textContent === '10000 service ports, 101 to 200 shown'");
  });
});

/** Texts whose contrast is below 4.5 (WCAG 2, AA), with the contrast. Run in the page. */
const LOW_CONTRAST = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const bytes = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => { for (let e = element; e; e = e.parentElement) { const color = bytes(getComputedStyle(e).backgroundColor); if (color[3] === 255) return color; } return [255, 255, 255]; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("svg, noscript, option, :disabled") || !element.checkVisibility()) continue;
    const [a, b] = [light(bytes(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(node.data.trim().slice(0, 40) + ": " + contrast.toFixed(2));
  }
  return found;
})()`;

/** Its style sheet again, with a name that no browser knows in place of light-dark(). Run in the page. */
const WITHOUT_LIGHT_DARK = `(async () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync((await (await fetch("style.css")).text()).replaceAll("light-dark(", "unknown("));
  document.adoptedStyleSheets = [sheet];
  for (const link of document.querySelectorAll("link[rel=stylesheet]")) link.disabled = true;
})()`;
