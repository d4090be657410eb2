/**
 * The npm package: packed from a fresh checkout, looked into, installed elsewhere, and run from there. What install scripts of other
 * packages do, `npm ci` of this checkout has shown: fetching a second Node.js takes longer than all the rest.
 */
import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { type CommandOptions, type CommandResult, runCommand } from "../../testkit/net/run-command.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { CHECKOUT } from "../docs/markdown.ts";
import { libraryExamples } from "./library-examples.ts";

const LIMIT = { timeoutMs: 240_000 };
interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly exports: Readonly<Record<string, unknown>>;
}
const manifest: Manifest = JSON.parse(readFileSync(join(CHECKOUT, "package.json"), "utf8"));
/** What npm says when there is no registry to install the dependencies from. */
const NO_REGISTRY = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH)\b/;

/** What the types must refuse: with `any` in them, the directives would be errors. */
const MISUSE = `import { type IpAddress, type NodeModel, parseIpAddress } from "kube-proxy-ts/model";
import { type Cluster, plan } from "kube-proxy-ts/plan";
import { NetlinkSocket } from "kube-proxy-ts/kernel/netlink";
import type { NftOperation } from "kube-proxy-ts/kernel/nftables";
export const address: IpAddress | undefined = parseIpAddress("10.96.0.1");
// @ts-expect-error: an address is no number
export const wrong: number | undefined = address;
// @ts-expect-error: a model has no such property
export const nothing = (model: NodeModel) => model.nothing;
// @ts-expect-error: there is no such mode
export const noMode = (cluster: Cluster) => plan({ cluster, mode: "telepathy" });
// @ts-expect-error: a protocol is a number
export const noSocket = () => NetlinkSocket.open("route");
// @ts-expect-error: there is no such operation
export const noOperation: NftOperation = { kind: "rename-chain" };
`;

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
  const isNeeded = (path: string) =>
    path === "docs/library.md" || (path !== "" && !/^(test|bench|docs|examples)\//.test(path));
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
      "--ignore-scripts",
      join(user, packed.filename),
    ] as const;
    const { status, stderr } = await runCommand(install, { ...LIMIT, cwd: user, allowFailure: true });
    if (status !== 0) {
      assert.match(stderr, NO_REGISTRY);
      noRegistry = "not on this machine: a registry of npm packages that can be reached";
      return;
    }
    assert.doesNotMatch(stderr, /EBADENGINE/);
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  test("holds the compiled program, its types and licence, and nothing else", () => {
    const paths = packed.files.map(({ path }) => path);
    const others = paths.filter((path) => !/^dist\/.*\.(js|d\.ts)$/.test(path) && !path.startsWith("dist/man/"));
    assert.deepEqual(others.sort(), [
      "LICENSE",
      "NOTICE",
      "README.md",
      "bin/kube-proxy",
      "bin/kubectl-kube_proxy",
      "bin/kubectl_complete-kube_proxy",
      "dist/build-info.json",
      "dist/bundle/kube-proxy.cjs",
      `dist/bundle/kube-proxy.cjs.${process.platform}-${process.arch}.cache`,
      "dist/bundle/log-places.json",
      "dist/modes/ebpf/socket-balancer/socket4.o",
      "dist/modes/ebpf/socket-balancer/socket6.o",
      "dist/tools/page/client/icon.svg",
      "dist/tools/page/client/index.html",
      "dist/tools/page/client/licences.txt",
      "dist/tools/page/client/style.css",
      "package.json",
    ]);
    assert.ok(paths.includes("dist/bundle/main.js"));
    assert.ok(paths.includes("dist/man/kube-proxy-explain.1"));
    const modules = paths.filter((path) => path.endsWith(".js") && !path.startsWith("dist/bundle/"));
    assert.ok(modules.length > 300, `${modules.length} modules`);
    // What the browser loads is no module of the library.
    const untyped = modules.filter((path) => !paths.includes(path.replace(/\.js$/, ".d.ts")));
    assert.deepEqual(
      untyped.filter((path) => !path.startsWith("dist/tools/page/client/")),
      [],
    );
    const forTests = paths.filter((path) => /\.test\.|\/testing\//.test(path));
    assert.deepEqual(forTests, []);
  });

  test("the library alone needs neither a Node.js of its own nor Linux, and is under 10 MB with all that it needs", async () => {
    const checkout = join(root, "checkout");
    await runCommand([process.execPath, join(checkout, "scripts/library-package.mjs")], LIMIT);
    const own = JSON.parse(readFileSync(join(checkout, "dist-library/package.json"), "utf8"));
    assert.deepEqual([own.os, own.libc, own.bin, own.scripts], [undefined, undefined, undefined, undefined]);
    assert.deepEqual([own.version, own.exports], [manifest.version, manifest.exports]);
    assert.deepEqual(Object.keys(own.optionalDependencies), ["koffi"]);
    const needed = Object.keys(own.dependencies);
    assert.ok(!needed.includes("node"), needed.join());

    // What npm would lay out where koffi cannot be installed.
    const bare = join(root, "bare");
    mkdirSync(join(bare, "node_modules"), { recursive: true });
    const pack = ["npm", "pack", "--json", "--pack-destination", bare, join(checkout, "dist-library")] as const;
    const [{ filename }] = JSON.parse((await runCommand(pack, { ...LIMIT, cwd: bare })).stdout);
    const library = join(bare, "node_modules/kube-proxy-ts-library");
    mkdirSync(library);
    await runCommand(["tar", "-xzf", join(bare, filename), "-C", library, "--strip-components=1"], LIMIT);
    for (const name of needed) symlinkSync(join(CHECKOUT, "node_modules", name), join(bare, "node_modules", name));
    const places = [library, ...[...needed, "koffi", "@koromix"].map((name) => join(CHECKOUT, "node_modules", name))];
    const { stdout: sizes } = await runCommand(["du", "-sbD", ...places], LIMIT);
    const bytes = sizes.split("\n").reduce((sum, line) => sum + Number(line.split("\t")[0]), 0);
    assert.ok(bytes < 10_000_000, `${bytes} bytes`);

    writeFileSync(join(bare, "package.json"), '{"type":"module"}');
    writeFileSync(
      join(bare, "elsewhere.mjs"),
      `Object.defineProperty(process, "platform", { value: process.argv[2] });
const { clusterFrom, modelOf } = await import("kube-proxy-ts-library/model");
const { plan } = await import("kube-proxy-ts-library/plan");
const { explain, trace } = await import("kube-proxy-ts-library/explain");
const spec = { clusterIP: "10.96.0.10", clusterIPs: ["10.96.0.10"], ipFamilies: ["IPv4"], ports: [{ port: 80 }] };
const labels = { "kubernetes.io/service-name": "web" };
const slice = { addressType: "IPv4", ports: [{ port: 8080 }], endpoints: [{ addresses: ["10.244.1.5"] }] };
const cluster = clusterFrom([
  { apiVersion: "v1", kind: "Service", metadata: { namespace: "shop", name: "web" }, spec },
  { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { namespace: "shop", name: "a", labels }, ...slice },
]);
const seen = [modelOf(cluster, { family: "IPv4" }).servicePorts.length];
for (const mode of ["iptables", "ipvs", "nftables", "userspace", "ebpf", "kernelspace"]) {
  const rules = await plan({ cluster, node: "node-a", mode, families: ["IPv4"] });
  seen.push((await rules.render()).includes("10.96.0.10"));
}
const request = { cluster, node: "node-a", mode: "nftables" };
seen.push((await explain(request, "shop/web")).servicePorts.length);
seen.push((await trace(request, { from: "outside", to: "10.96.0.10", port: 80 })).outcomes.length);
console.log(JSON.stringify(seen));
`,
    );
    for (const platform of ["linux", "darwin", "win32"]) {
      const { stdout } = await runCommand([process.execPath, "elsewhere.mjs", platform], { ...LIMIT, cwd: bare });
      assert.deepEqual(JSON.parse(stdout), [1, true, true, true, true, true, true, 1, 1], platform);
    }
  });

  test("runs where it is installed: it says who it is, and renders", async (t) => {
    if (noRegistry !== undefined) return t.skip(noRegistry);
    const options = { ...LIMIT, cwd: user };
    const version = await runCommand([join(user, "node_modules/.bin/kube-proxy"), "--version"], options);
    const [first, second = ""] = version.stdout.split("\n");
    assert.equal(first, "Kubernetes v1.37.0");
    assert.ok(second.startsWith(`kube-proxy-ts ${manifest.version} (commit ${commit}, Node.js v24.`), second);
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
    const rendered = await runCommand(["npx", "--no-install", "kube-proxy-ts", ...render], options);
    assert.match(rendered.stdout, /shop\/web.*10\.96\.0\.10|10\.96\.0\.10.*shop\/web/);
  });

  describe("as a library", () => {
    const examples = libraryExamples();
    before(() => {
      if (noRegistry !== undefined) return;
      cpSync(join(CHECKOUT, "examples"), join(user, "manifests"), { recursive: true });
      symlinkSync(join(CHECKOUT, "node_modules/@types"), join(user, "node_modules/@types"));
      for (const { name, source } of examples) writeFileSync(join(user, `${name}.ts`), source);
    });

    test("every entry has an example", () => {
      const entries = Object.keys(manifest.exports).filter((entry) => entry !== "./package.json");
      const without = entries.filter((entry) => {
        const specifier = `"${manifest.name}${entry.slice(1)}"`;
        const showing = examples.filter(({ source }) => source.includes(specifier));
        return !showing.some(({ name }) => name.startsWith("library-")) || showing.length < 2;
      });
      assert.deepEqual(without, []);
    });

    test("examples and misuse pass the strictest type check, the package's declarations included", async (t) => {
      if (noRegistry !== undefined) return t.skip(noRegistry);
      writeFileSync(join(user, "misuse.ts"), MISUSE);
      const files = [...examples.map(({ name }) => `${name}.ts`), "misuse.ts"];
      const options = [
        "--noEmit",
        "--strict",
        "--exactOptionalPropertyTypes",
        "--module",
        "nodenext",
        "--types",
        "node",
        "--checkers",
        "1",
      ];
      const more = ["--target", "es2024", "--lib", "es2024,esnext.disposable", "--skipLibCheck", "false"];
      const compiler = join(CHECKOUT, "node_modules/typescript/bin/tsc");
      const { stdout, status } = await runCommand([process.execPath, compiler, ...options, ...more, ...files], {
        ...LIMIT,
        cwd: user,
        allowFailure: true,
      });
      assert.equal(status, 0, stdout);
    });

    test("nothing but its entries can be imported", async (t) => {
      if (noRegistry !== undefined) return t.skip(noRegistry);
      const internal = [
        "kube-proxy-ts",
        "kube-proxy-ts/dist/net/ip.js",
        "kube-proxy-ts/dist/lib/model.js",
        "kube-proxy-ts/bin/kube-proxy",
      ];
      const source = `for (const name of ${JSON.stringify(internal)}) {
  console.log(String(await import(name).then(() => "open", (error) => error.code)));
}
console.log(String(import.meta.resolve("kube-proxy-ts/package.json").endsWith("/kube-proxy-ts/package.json")));
`;
      writeFileSync(join(user, "internal.mjs"), source);
      const { stdout } = await runCommand([process.execPath, "internal.mjs"], { ...LIMIT, cwd: user });
      assert.deepEqual(stdout.trim().split("\n"), [...internal.map(() => "ERR_PACKAGE_PATH_NOT_EXPORTED"), "true"]);
    });

    for (const { name, output, needsRoot } of examples) {
      test(`example ${name} prints what the page says`, { skip: needsRoot && netnsSkip }, async (t) => {
        if (noRegistry !== undefined) return t.skip(noRegistry);
        const command = [process.execPath, `${name}.ts`] as const;
        const options = { ...LIMIT, cwd: user };
        const { stdout } = needsRoot ? await inNamespace(command, options) : await runCommand(command, options);
        if (output !== undefined) assert.equal(stdout, output);
        else assert.notEqual(stdout, "");
      });
    }
  });
});

/** Runs a program in a network namespace that nothing else uses. */
async function inNamespace(command: readonly [string, ...string[]], options: CommandOptions): Promise<CommandResult> {
  const namespace = await NetworkNamespace.create(`kpts-library-${process.pid}`);
  try {
    return await namespace.exec(command, options);
  } finally {
    await namespace.remove();
  }
}
