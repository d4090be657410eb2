/** `npm test -- FILE` and `npm run watch -- FOLDER`, as a developer types them. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { until } from "../support/patience.ts";
import { Sources } from "./reach.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const { NODE_TEST_CONTEXT: _, ...environment } = process.env;

/** A checkout with the runner and nothing to test, in a path with a blank. */
function checkout(t: TestContext, sources: Readonly<Record<string, string>>): (path: string) => string {
  const root = mkdtempSync(join(tmpdir(), "kpts named-"));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  for (const name of [
    "scripts",
    "testkit/batches",
    "testkit/needs",
    "testkit/support",
    "package.json",
    "package-lock.json",
  ]) {
    cpSync(join(ROOT, name), join(root, name), {
      recursive: true,
      filter: (path) => !path.endsWith(".test.ts"),
    });
  }
  symlinkSync(join(ROOT, "node_modules"), join(root, "node_modules"));
  for (const [path, text] of Object.entries(sources)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return (path) => join(root, path);
}

const UNIT = 'import { test } from "node:test";\ntest("is well", () => {});\n';
const NEEDING = `import "../testkit/needs/qemu.ts";\nimport "../testkit/needs/built-program.ts";\n${UNIT}`;

test("a file that needs nothing is run, and nothing is built or installed", (t) => {
  const path = checkout(t, { "src/unit.test.ts": UNIT, "src/other.ts": "", "test/needing.test.ts": NEEDING });
  // Both leave a mark instead of doing their work.
  for (const [name, text] of [
    ["flock", '#!/bin/sh\necho "$*" >> "$MARKS"\n'],
    ["apt-get", "#!/bin/sh\n"],
  ] as const) {
    writeFileSync(path(name), text);
    chmodSync(path(name), 0o755);
  }
  const mark = 'if (process.argv[1].endsWith("build.mjs")) appendFileSync(process.env.MARKS, "build\\n");';
  writeFileSync(
    path("scripts/build.mjs"),
    `import { appendFileSync } from "node:fs";\nexport const build = 0;\n${mark}\n`,
  );
  const run = (...names: readonly string[]) => {
    const env = { ...environment, MARKS: path("marks"), PATH: `${path("")}:${process.env.PATH}` };
    rmSync(path("marks"), { force: true });
    const args = ["scripts/bootstrap.mjs", "test", ...names];
    const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: path(""), env, encoding: "utf8" });
    return {
      lines: stripVTControlCharacters(stdout + stderr)
        .trim()
        .split("\n"),
      marks: existsSync(path("marks")) ? readFileSync(path("marks"), "utf8") : "",
    };
  };
  // A source stands for the test beside it; a folder for what is below it.
  writeFileSync(path("src/unit.ts"), "");
  for (const name of ["src/unit.test.ts", "src/unit.ts", "src"]) {
    const { lines, marks } = run(name);
    assert.match(lines[0] ?? "", /^✓ src\/unit\.test\.ts 1 passed, \d+ ms$/);
    assert.deepEqual(lines.slice(1), ["1 passed, 0 failed, 0 skipped"]);
    assert.equal(marks, "");
  }
  assert.match(run("test").marks, /^build$/m, "what is named needs the built program");
  assert.match(run("src/other.ts").lines.join("\n"), /^no test file under src\/other\.ts$/m);
});

test("a folder that is watched is run again after an edit, and with files that are added", async (t) => {
  const path = checkout(t, {
    "src/one.ts": "export const one = 1;\n",
    "src/one.test.ts":
      'import { equal } from "node:assert";\nimport { test } from "node:test";\nimport { one } from "./one.ts";\ntest("one", () => equal(one, 1));\n',
  });
  const child = spawn(process.execPath, ["scripts/bootstrap.mjs", "watch", "src"], { cwd: path(""), env: environment });
  t.after(() => child.kill("SIGTERM"));
  let shown = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (shown += text));
  const saw = (pattern: RegExp) =>
    until(String(pattern), () => pattern.test(stripVTControlCharacters(shown)), {
      patienceMs: 20_000,
      evidence: () => shown,
    });
  await saw(/^1 passed, 0 failed, 0 skipped; waiting for a change/m);
  writeFileSync(path("src/one.ts"), "export const one = 2;\n");
  await saw(/^✗ src\/one\.test\.ts: one \(line 4\)\n(?:.*\n)*0 passed, 1 failed, 0 skipped; waiting/m);
  writeFileSync(path("src/two.test.ts"), UNIT);
  await saw(/^✓ src\/two\.test\.ts 1 passed/m);
});

/** What a file says that it needs. */
function needsOf(...files: readonly string[]): string[] {
  const code = `import { needsOf } from ${JSON.stringify(join(ROOT, "scripts/test-needs.mjs"))};
console.log(JSON.stringify(process.argv.slice(2).map((file) => needsOf(process.argv[1], [file]).join(" "))));`;
  const args = ["--input-type=module", "-e", code, ROOT, ...files.map((file) => join(ROOT, file))];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8" }));
}

test("tests of each kind need what they use, and no more", () => {
  const expected = {
    "src/model/service-ports.test.ts": "",
    "testkit/vm/acceleration.test.ts": "",
    "test/cli/render.test.ts": "",
    "test/cli/command-line.test.ts": "built-program",
    "src/kernel/nftables/netlink-expressions.test.ts": "kernel-tools",
    "test/kernel/flows/matrix.test.ts": "built-program kernel-tools",
    "bench/run.test.ts": "built-program kernel-tools",
    "test/deploy/image.test.ts": "built-program kernel-tools image-tools",
    "testkit/vm/uml.test.ts": "built-program kernel-tools",
    "testkit/net/sctp/sctp-socket.vm.test.ts": "built-program kernel-tools",
    "testkit/vm/qemu.test.ts": "built-program kernel-tools qemu",
  };
  assert.deepEqual(needsOf(...Object.keys(expected)), Object.values(expected));
});

const TOOL =
  /\b(?:execFileSync|spawnSync|spawn)\(\s*"(?:ip|nft|ip6?tables[\w-]*|conntrack|ipset|ipvsadm|nfacct|sysctl)"/;
const PROGRAM = /\bnew URL\("[./]*(?:bin\/kube-proxy|dist\/)/;

test("a test that starts one of the tools, or the program, says that it needs it", () => {
  const sources = new Sources(ROOT);
  const textOf = new Map<string, string>();
  const read = (path: string) => {
    if (!textOf.has(path)) textOf.set(path, readFileSync(join(ROOT, path), "utf8"));
    return textOf.get(path) ?? "";
  };
  const ofTests = (path: string) => !path.startsWith("src/") || path.endsWith(".test.ts");
  const missing: string[] = [];
  for (const file of globSync(["{src,test,testkit,demo}/**/*.test.ts", "bench/*.test.ts"], { cwd: ROOT })) {
    const reached = [...sources.reachedFrom(file).keys()].filter(ofTests);
    const starting = reached.find((path) => TOOL.test(read(path)));
    if (starting !== undefined && !reached.includes("testkit/needs/kernel-tools.ts"))
      missing.push(`${file}: ${starting}`);
  }
  assert.deepEqual(missing, []);
  const naming = [...textOf].filter(([, text]) => PROGRAM.test(text)).map(([path]) => path);
  assert.deepEqual(naming, ["testkit/needs/built-program.ts"]);
});
