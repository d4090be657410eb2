/** The npm package: packed from a fresh checkout, looked into, installed elsewhere, and run from there. */
import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { runCommand } from "../../testkit/net/run-command.ts";
import { CHECKOUT } from "../docs/markdown.ts";

const LIMIT = { timeoutMs: 240_000 };
const { version }: { readonly version: string } = JSON.parse(readFileSync(join(CHECKOUT, "package.json"), "utf8"));
/** What npm says when there is no registry to install the dependencies from. */
const NO_REGISTRY = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH)\b/;

interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

/** The files under version control, with these packages, as a checkout of its own. @returns its commit. */
async function freshCheckout(folder: string): Promise<string> {
  const listed = await runCommand([
    "git",
    "-C",
    CHECKOUT,
    "ls-files",
    "--cached",
    "--others",
    "--exclude-standard",
    "-z",
  ]);
  const isNeeded = (path: string) => path !== "" && !/^(test|bench|docs|examples)\//.test(path);
  for (const path of listed.stdout.split("\0").filter(isNeeded)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    cpSync(join(CHECKOUT, path), join(folder, path));
  }
  symlinkSync(join(CHECKOUT, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, ".git-exclude"), "node_modules\n.git-exclude\n");
  const git = (...args: readonly string[]) => runCommand(["git", "-C", folder, ...args]);
  await git("init", "--quiet");
  await git("config", "core.excludesFile", join(folder, ".git-exclude"));
  await git("add", "--all");
  await git("-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "all");
  return (await git("rev-parse", "HEAD")).stdout.trim();
}

describe("the npm package", () => {
  const root = mkdtempSync(join(tmpdir(), "kpts-package-"));
  const user = join(root, "user");
  let commit = "";
  let packed: Packed = { filename: "", files: [] };
  let noRegistry: string | undefined;

  before(async () => {
    const checkout = join(root, "checkout");
    mkdirSync(checkout);
    mkdirSync(user);
    commit = await freshCheckout(checkout);
    // npm prints what the scripts print as well; its own answer comes last.
    const { stdout } = await runCommand(["npm", "pack", "--json", "--pack-destination", user], {
      ...LIMIT,
      cwd: checkout,
    });
    [packed = packed] = JSON.parse(stdout.slice(stdout.indexOf("[\n")));
    writeFileSync(join(user, "package.json"), '{"private":true,"type":"module"}');
    const install = [
      "npm",
      "install",
      "--prefer-offline",
      "--no-audit",
      "--no-fund",
      join(user, packed.filename),
    ] as const;
    const { status, stderr } = await runCommand(install, { ...LIMIT, cwd: user, allowFailure: true });
    if (status !== 0) {
      assert.match(stderr, NO_REGISTRY);
      noRegistry = "not on this machine: a registry of npm packages that can be reached";
    }
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  test("holds the compiled program, its types and licence, and nothing else", () => {
    const paths = packed.files.map(({ path }) => path);
    const others = paths.filter((path) => !/^dist\/.*\.(js|d\.ts)$/.test(path));
    assert.deepEqual(others.sort(), [
      "LICENSE",
      "NOTICE",
      "README.md",
      "bin/kube-proxy",
      "dist/build-info.json",
      "package.json",
    ]);
    const modules = paths.filter((path) => path.endsWith(".js"));
    assert.ok(modules.length > 300, `${modules.length} modules`);
    const untyped = modules.filter((path) => !paths.includes(path.replace(/\.js$/, ".d.ts")));
    assert.deepEqual(untyped, []);
    const forTests = paths.filter((path) => /\.test\.|\/testing\//.test(path));
    assert.deepEqual(forTests, []);
  });

  test("runs where it is installed: it says who it is, and renders", async (t) => {
    if (noRegistry !== undefined) return t.skip(noRegistry);
    const npx = (...args: readonly string[]) =>
      runCommand(["npx", "--no-install", "kube-proxy-ts", ...args], { ...LIMIT, cwd: user });
    const [first, second = ""] = (await npx("--version")).stdout.split("\n");
    assert.equal(first, "Kubernetes v1.36.2");
    assert.ok(second.startsWith(`kube-proxy-ts ${version} (commit ${commit}, Node.js v24.`), second);
    const examples = join(CHECKOUT, "examples");
    const render = [
      "render",
      "--mode",
      "nftables",
      "--family",
      "ipv4",
      "-f",
      examples,
      "--hostname-override",
      "node-a",
    ];
    assert.match((await npx(...render)).stdout, /shop\/web.*10\.96\.0\.10|10\.96\.0\.10.*shop\/web/);
  });

  test("its types can be used from TypeScript", async (t) => {
    if (noRegistry !== undefined) return t.skip(noRegistry);
    const source = `import { type IpAddress, parseIpAddress } from "kube-proxy-ts/dist/net/ip.js";
const address: IpAddress | undefined = parseIpAddress("10.96.0.1");
// @ts-expect-error: an address is no number
export const wrong: number | undefined = address;
`;
    writeFileSync(join(user, "consumer.ts"), source);
    const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024", "--types", ""];
    const compiler = join(CHECKOUT, "node_modules/typescript/bin/tsc");
    const { stdout, status } = await runCommand([process.execPath, compiler, ...options, "consumer.ts"], {
      ...LIMIT,
      cwd: user,
      allowFailure: true,
    });
    assert.equal(status, 0, stdout);
  });
});
