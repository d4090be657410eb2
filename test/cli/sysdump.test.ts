/** `sysdump`: what the archive has and must not have, with and without a daemon, and the commands that read it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { type TestContext, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { createServer } from "../../src/kernel/node-http.ts";
import { withoutCredentials, withoutSecrets } from "../../src/logging/secrets.ts";
import { diff } from "../../src/tools/cli/diff.ts";
import { dumpFiles } from "../../src/tools/cli/dump-folder.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { render } from "../../src/tools/cli/render.ts";
import { tarMember } from "../../src/tools/cli/sysdump/archive.ts";
import { redacted } from "../../src/tools/cli/sysdump/redact.ts";
import { httpPlaces } from "../../src/tools/cli/sysdump/settings.ts";
import { sysdump } from "../../src/tools/cli/sysdump.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { objectsList } from "../../src/tools/explain/objects-list.ts";
import { daemonAt } from "./inspected-daemon.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
/** Nothing listens there. */
const NO_DAEMON = ["--metrics", "127.0.0.1:9", "--healthz", "127.0.0.1:9"];
const NODE_A = ["--node", "node-a", "--mode", "iptables"];

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "kpts-sysdump-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

/** Unpacks with the system's tar. @returns the only folder in the archive. */
function unpacked(archive: string, at: string): string {
  execFileSync("tar", ["-xzf", archive, "-C", at]);
  const [name = ""] = readdirSync(at).filter(
    (entry) => entry.startsWith("kube-proxy-sysdump-") && !entry.endsWith("gz"),
  );
  return join(at, name);
}

const SECRET = "s3cr3tV4lu3";
const LONG = `QUJD${"RGVm".repeat(40)}${SECRET}`;
const KUBECONFIG = `
apiVersion: v1
kind: Config
clusters:
- name: here
  cluster: {server: "https://admin:${SECRET}@api.example:6443/?token=${SECRET}", certificate-authority-data: ${LONG}}
contexts: [{name: here, context: {cluster: here, user: me}}]
users:
- name: me
  user:
    token: ${SECRET}
    tokenFile: /var/run/secrets/token
    password: ${SECRET}
    client-key-data: ${LONG}
    client-certificate-data: ${LONG}
    auth-provider: {name: oidc, config: {id-token: ${SECRET}, refresh-token: ${SECRET}}}
    exec:
      command: aws
      args: [--header, "${SECRET}", "--password=${SECRET}"]
      env: [{name: AWS_SECRET_ACCESS_KEY, value: ${SECRET}}, {name: HARMLESS, value: ${SECRET}}]
extensions: [{name: x, extension: {note: ${SECRET}}}]
`;
const LOG = [
  `I0101 connecting "https://user:${SECRET}@api.example/?access_token=${SECRET}&x=1"`,
  `I0101 header Authorization: Bearer ${SECRET}abcdefgh`,
  `{"msg":"x","token":"${SECRET}","nested":"{\\"password\\":\\"${SECRET}\\"}"}`,
  `E0101 err="Unauthorized" bearer_token=${SECRET} password: ${SECRET}`,
  `--token ${SECRET} eyJhbGciOiJSUzI1NiIs.${SECRET}.${SECRET}`,
  `-----BEGIN RSA PRIVATE KEY-----\n${SECRET}\n${SECRET}\n-----END RSA PRIVATE KEY-----`,
  `blob ${LONG}`,
  "I0101 an ordinary line that stays",
].join("\n");

test("no secret gets into an archive, wherever it stood", async (t) => {
  const at = folder(t);
  const file = (name: string, text: string) => {
    writeFileSync(join(at, name), text);
    return join(at, name);
  };
  const config = file(
    "config.yaml",
    `apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nbearerToken: ${SECRET}\nclientConnection: {kubeconfig: ${file("kubeconfig", KUBECONFIG)}, password: ${SECRET}}\n`,
  );
  const objects = JSON.parse(EXAMPLES);
  for (const { metadata } of objects.items) metadata.annotations = { note: SECRET };
  const daemon = createServer((request, response) => {
    response.setHeader("content-type", "application/json");
    response.end(
      request.url === "/configz"
        ? JSON.stringify({ kubeproxyconfig: { clientConnection: { token: SECRET } } })
        : `--secret-flag=${SECRET}\npassword ${SECRET}\nurl https://u:${SECRET}@h/?token=${SECRET}\nAuthorization: Bearer ${SECRET}000\n`,
    );
  });
  await new Promise<void>((resolve) => daemon.listen(0, "127.0.0.1", resolve));
  t.after(() => daemon.close());
  const address = daemon.address();
  const port = typeof address === "object" ? address?.port : 0;
  const path = join(at, "out.tar.gz");
  const { status, out, err } = await runCommand(
    sysdump,
    [
      "-o",
      path,
      "--config",
      config,
      "-f",
      "-",
      "--node",
      "node-a",
      "--log",
      file("daemon.log", LOG),
      "--metrics",
      `127.0.0.1:${port}`,
      "--healthz",
      "127.0.0.1:9",
    ],
    JSON.stringify(objects),
  );
  assert.equal(status, 0, err);
  assert.match(out, /out\.tar\.gz: \d+ parts, \d+ KiB\n$/);
  assert.equal(statSync(path).mode & 0o777, 0o600);

  const dump = unpacked(path, at);
  const text = gunzipSync(readFileSync(path)).toString();
  const metrics = readFileSync(join(dump, "daemon/metrics.txt"), "utf8");
  // Nothing distinguishes a value that a program prints in its own way from a Service name: the daemon's metrics have no secrets.
  assert.equal(metrics.includes(`https://u:${SECRET}`), false);
  const others = text.replace(metrics, "");
  const found = others.indexOf(SECRET);
  assert.equal(found, -1, others.slice(Math.max(0, found - 200), found + 50));

  const kubeconfig = JSON.parse(readFileSync(join(dump, "config/kubeconfig.json"), "utf8"));
  assert.equal(kubeconfig.users[0].user.tokenFile, "/var/run/secrets/token");
  assert.equal(kubeconfig.users[0].user.exec.command, "aws");
  assert.match(kubeconfig.clusters[0].cluster.server, /^https:\/\/\(left out\)@api\.example:6443\//);
  assert.match(readFileSync(join(dump, "logs/1-daemon.log"), "utf8"), /an ordinary line that stays/);
  const index = JSON.parse(readFileSync(join(dump, "index.json"), "utf8"));
  assert.equal(index.node, "node-a");
  assert.ok(
    index.notRead.some(({ name, why }: { name: string; why: string }) => name === "daemon/status.json" && why !== ""),
  );
  // Each part has a file, or the index says that it is empty or was not read.
  const named = [...index.files, ...index.notRead].map(({ name }: { name: string }) => name).concat(index.empty);
  for (const tool of ["iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy"])
    assert.equal(named.filter((name) => name === `rules/${tool}-save.txt`).length, 1, tool);
  for (const name of index.empty) assert.equal(existsSync(join(dump, name)), false);
  for (const entry of globSync("**/*", { cwd: dump, withFileTypes: true })) {
    if (entry.isFile()) assert.equal(statSync(join(entry.parentPath, entry.name)).mode & 0o077, 0, entry.name);
  }
});

test("what a running daemon says is in it; one without a journal is no hindrance", async (t) => {
  const at = folder(t);
  const socket = join(at, "daemon.sock");
  daemonAt(t, socket, [{ subject: "shop/web:http", reason: `https://me:${SECRET}@host refused` }]);
  const path = join(at, "a.tar.gz");
  const { status, err } = await runCommand(
    sysdump,
    ["-o", path, ...NO_DAEMON, "--socket", socket, "-f", "-"],
    EXAMPLES,
  );
  assert.equal(status, 0);
  assert.doesNotMatch(err, /status\.json|services\.json|journal/);
  const dump = unpacked(path, at);
  const report = readFileSync(join(dump, "daemon/status.json"), "utf8");
  assert.deepEqual([JSON.parse(report).mode, report.includes(SECRET)], ["nftables", false]);
  assert.ok(JSON.parse(readFileSync(join(dump, "daemon/services.json"), "utf8")).length > 10);
});

test("explain knows from a sysdump whom the node's daemon left out, and takes a status of any shape", async (t) => {
  const at = folder(t);
  const path = join(at, "a.tar.gz");
  const made = await runCommand(sysdump, ["-o", path, "--node", "node-a", ...NO_DAEMON, "-f", "-"], EXAMPLES);
  assert.equal(made.status, 0, made.err);
  const dump = unpacked(path, at);
  const saidOf = async (families: unknown, node = "node-a") => {
    mkdirSync(join(dump, "daemon"), { recursive: true });
    writeFileSync(join(dump, "daemon/status.json"), JSON.stringify({ node, mode: "iptables", families }));
    const { status, out, err } = await runCommand(explain, ["shop/web", "--dump", dump, ...NODE_A]);
    assert.notEqual(out, "", `${status}: ${err}`);
    return out;
  };
  const leftOut = [
    { servicePort: "shop/web:http/TCP", endpoint: "10.180.1.11:8080", why: "6 of 6 connections unanswered" },
  ];
  const said = await saidOf([{ family: "IPv4", leftOut }]);
  assert.match(said, /10\.180\.1\.11:8080.*left out: .*6 of 6 connections unanswered/);
  assert.match(said, /10\.180\.0\.11:8080.*50 %/);
  for (const families of [
    undefined,
    null,
    "x",
    [null, { leftOut: "x" }, { leftOut: [7, { servicePort: "shop/web:http" }] }],
  ])
    assert.doesNotMatch(await saidOf(families), /left out/);
  assert.doesNotMatch(await saidOf([{ leftOut }], "node-b"), /left out/, "another node's daemon");
});

test("the daemon is asked where its configuration says that it serves, at loopback when that is everywhere", async (t) => {
  const at = folder(t);
  const config = join(at, "config.yaml");
  const placesOf = async (body: string) => {
    writeFileSync(config, `apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n${body}\n`);
    return Object.values(await httpPlaces(config));
  };
  assert.deepEqual(await placesOf("metricsBindAddress: 0.0.0.0:9100"), ["127.0.0.1:9100", "127.0.0.1:10256"]);
  assert.deepEqual(await placesOf("bindAddress: '::'"), ["[::1]:10249", "[::1]:10256"]);
  assert.deepEqual(await placesOf("healthzBindAddress: 10.0.0.7"), ["127.0.0.1:10249", "10.0.0.7:10256"]);
  assert.deepEqual(await placesOf("mode: bogus"), ["127.0.0.1:10249", "127.0.0.1:10256"]);
  assert.deepEqual(Object.values(await httpPlaces(undefined)), ["127.0.0.1:10249", "127.0.0.1:10256"]);
  const daemon = createServer((request, response) => void response.end(`asked for ${request.url}\n`));
  await new Promise<void>((resolve) => daemon.listen(0, "127.0.0.1", resolve));
  t.after(() => daemon.close());
  const address = daemon.address();
  await placesOf(`metricsBindAddress: 0.0.0.0:${typeof address === "object" ? address?.port : 0}`);
  const path = join(at, "a.tar.gz");
  const { status, err } = await runCommand(sysdump, ["-o", path, "--config", config, "--healthz", "127.0.0.1:9"]);
  assert.equal(status, 0, err);
  assert.equal(readFileSync(join(unpacked(path, at), "daemon/metrics.txt"), "utf8"), "asked for /metrics\n");
});

test("nodes and log files with long names, as clouds give them, have their archive, too", async (t) => {
  const at = folder(t);
  const path = join(at, "out.tar.gz");
  const log = join(at, `${"long-name-of-a-log".repeat(4)}.log`);
  writeFileSync(log, "the last line\n");
  const node = "ip-10-0-1-23.eu-central-1.compute.internal";
  const { status, err } = await runCommand(sysdump, ["-o", path, "--node", node, "--log", log, ...NO_DAEMON]);
  assert.equal(status, 0, err);
  const dump = unpacked(path, at);
  const { files } = JSON.parse(readFileSync(join(dump, "index.json"), "utf8"));
  for (const { name, bytes } of files) assert.equal(statSync(join(dump, name)).size, bytes, name);
  const [kept = ""] = readdirSync(join(dump, "logs"));
  assert.equal(readFileSync(join(dump, "logs", kept), "utf8"), "the last line\n");
  for (const [folder, name] of [
    ["x".repeat(156), "y"],
    ["x", "y".repeat(101)],
  ] as const)
    assert.throws(() => [...tarMember(folder, name, Buffer.alloc(0), 0)], RangeError);
});

test("texts are left as they are where nothing is secret", () => {
  for (const text of [
    "shop/token:http TCP",
    "a basic question",
    "https://10.0.0.1:6443/api",
    '-A KUBE-SVC-ABC -m comment --comment "shop/password:http"',
  ]) {
    assert.equal(withoutCredentials(text), text);
  }
  assert.equal(withoutSecrets("token=x and key-data: y"), "token=(left out) and key-data: (left out)");
  assert.deepEqual(
    redacted({ mode: "ipvs", ipvs: { scheduler: "rr", strictARP: true }, nodePortAddresses: ["primary"] }),
    {
      mode: "ipvs",
      ipvs: { scheduler: "rr", strictARP: true },
      nodePortAddresses: ["primary"],
    },
  );
});

test("a log with a word as long as the log holds nothing up, and hides no secret", () => {
  const startMs = performance.now();
  const word = "0123abcd".repeat(50_000);
  assert.equal(
    withoutSecrets(`digest ${word} my-token-of-${word.slice(0, 80)}=${SECRET}`),
    `digest (left out) my-token-of-${word.slice(0, 80)}=(left out)`,
  );
  // It took minutes when a match could begin anywhere in the word.
  assert.ok(performance.now() - startMs < 10_000);
});

test("a file that is there stays, unless it may be replaced; links are never followed", async (t) => {
  const at = folder(t);
  const path = join(at, "mine");
  writeFileSync(path, "mine");
  const link = join(at, "link");
  symlinkSync(path, link);
  const ask = (...args: string[]) => runCommand(sysdump, [...NO_DAEMON, ...NODE_A, "-f", "-", ...args], EXAMPLES);
  for (const [one, why] of [
    [path, /Error: .*mine already exists\nGive another name with -o, or --force/],
    [link, /already exists/],
    [join(at, "none", "x"), /cannot write/],
  ] as const) {
    const { status, out, err } = await ask("-o", one);
    assert.deepEqual([status, out], [2, ""]);
    assert.match(err, why);
  }
  assert.match((await ask("-o", link, "--force")).err, /is not a regular file/);
  assert.equal(readFileSync(path, "utf8"), "mine");
  assert.equal((await ask("-o", path, "--force")).status, 0);
  assert.equal(gunzipSync(readFileSync(path)).subarray(345, 355).toString(), "kube-proxy");
});

test("bad input: status 2, and nothing is written", async (t) => {
  const at = folder(t);
  for (const args of [["--metrics", "x"], ["--services", "7"], ["--nonsense"], ["stray"]]) {
    const { status, err } = await runCommand(sysdump, ["-o", join(at, "x"), ...args]);
    assert.equal(status, 2);
    assert.match(err, /^Error: /);
  }
  assert.deepEqual(readdirSync(at), []);
});

test("objects as manifests are the same objects again", () => {
  const rare = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name: "rare", annotations: { "preserve-destination": "true" } },
    spec: {
      clusterIP: "10.96.9.9",
      type: "LoadBalancer",
      ports: [{ port: 80 }],
      sessionAffinity: "ClientIP",
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 31999,
    },
    status: { loadBalancer: { ingress: [{ ip: "203.0.113.9", ipMode: "Proxy" }] } },
  };
  const unserved = [
    { spec: { clusterIP: "None", selector: { app: "db", tier: "back" } } },
    { labels: { "service.kubernetes.io/service-proxy-name": "other" }, spec: { clusterIP: "10.96.9.8" } },
    {
      spec: { ...rare.spec, clusterIP: "10.96.9.7" },
      status: { loadBalancer: { ingress: [{ hostname: "lb.example" }] } },
    },
  ].map(({ labels = {}, ...own }, index) => {
    return { ...rare, status: {}, ...own, metadata: { namespace: "shop", name: `unserved-${index}`, labels } };
  });
  const slice = {
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
    metadata: {
      ...{ namespace: "shop", name: "rare-1", labels: { "kubernetes.io/service-name": "rare" } },
      annotations: { "kube-proxy-ts/weight": "3" },
    },
    endpoints: [{ addresses: ["10.180.0.77"], zone: "zone-1" }],
  };
  const objects = [JSON.parse(EXAMPLES), rare, slice, ...unserved];
  const before = projectObjects(objects, "", { keepsPods: true });
  const after = projectObjects([JSON.parse(JSON.stringify(objectsList(before)))], "", { keepsPods: true });
  assert.deepEqual(after.problems, []);
  const plain = ({ services, endpointSlices, nodes, serviceCIDRs, serviceNotes = [] }: typeof before) => ({
    services,
    serviceNotes: new Map(serviceNotes.map((notes) => [notes.name, notes])),
    nodes,
    serviceCIDRs,
    endpointSlices: endpointSlices.map((slice) => ({ ...slice, resourceVersion: "", lastChangeTriggerTime: "" })),
  });
  assert.deepEqual(plain(after), plain(before));
});

test("explain, trace and diff read what is unpacked; standard output takes the archive, too", async (t) => {
  const at = folder(t);
  const parts: Buffer[] = [];
  const stream = new Writable({
    write(part: Buffer, _encoding, done) {
      parts.push(part);
      done();
    },
  });
  let err = "";
  const output = {
    out: () => assert.fail("only the archive"),
    err: (text: string) => {
      err += text;
    },
  };
  assert.equal(
    await sysdump(["-o", "-", ...NO_DAEMON, ...NODE_A, "-f", "-"], output, Readable.from([EXAMPLES]), stream),
    0,
  );
  assert.match(err, /left out: daemon\/status\.json: no answer at \/run\/kube-proxy\/inspect\.sock/);
  const path = join(at, "a.tar.gz");
  writeFileSync(path, Buffer.concat(parts));
  const dump = unpacked(path, at);

  const objects = ["-f", join(dump, "objects"), "--node", "node-a", "--family", "ipv4"];
  assert.match((await runCommand(explain, ["shop/web", ...objects])).out, /^shop\/web:http TCP/);

  // The rules of the host that runs the tests may be any: replace them with the wanted ones.
  for (const name of readdirSync(join(dump, "rules"))) rmSync(join(dump, "rules", name));
  const saved = await runCommand(
    render,
    ["-f", "-", "--mode", "iptables", "--hostname-override", "node-a", "-o", "iptables-save", "--family", "ipv4"],
    EXAMPLES,
  );
  writeFileSync(join(dump, "rules/iptables-save.txt"), saved.out);
  writeFileSync(join(dump, "rules/nft.txt"), "table ip filter {\n}\n");
  const same = await runCommand(diff, [...objects, "--mode", "iptables", "--dump", dump]);
  assert.deepEqual([same.status, same.out, same.err], [0, "No differences.\n", ""]);
  // The dump provides its own context: objects, the node, and its configuration.
  mkdirSync(join(dump, "config"), { recursive: true });
  writeFileSync(
    join(dump, "config/kube-proxy.json"),
    JSON.stringify({ mode: "iptables", clusterCIDR: "10.180.0.0/16" }),
  );
  const { out: explained } = await runCommand(explain, ["shop/web", "--dump", dump, "--family", "ipv4"]);
  assert.match(
    explained,
    /^shop\/web:http TCP, ClusterIP, on node-a \(zone-1\), iptables mode \(of the sysdump\), IPv4\n/,
  );
  assert.match(explained, /outside: +answered by any endpoint, which sees the node \(masqueraded\)/);
  const withConfig = await runCommand(diff, ["--family", "ipv4", "--dump", dump]);
  assert.match(withConfig.out, /missing: -A KUBE-SVC-\S+ ! -s 10\.180\.0\.0\/16 /);
  assert.equal(withConfig.err, "");
  // The folder that it was unpacked in will do, too.
  const around = await runCommand(diff, ["--family", "ipv4", "--dump", at]);
  assert.deepEqual([around.out, around.err], [withConfig.out, ""]);
  assert.equal((await runCommand(explain, ["shop/web", "--dump", at, "--family", "ipv4"])).out, explained);
  const named = await runCommand(trace, ["--from", "shop/web-1", "--to", "shop/web:http", "--dump", dump]);
  assert.match(named.out, /33\.3 % {2}sent to 10\.180\.0\.11:8080/, named.err);
  const walked = await runCommand(trace, [
    "--from",
    "10.200.0.9",
    "--to",
    "10.96.0.10:80",
    "--local",
    "10.200.0.2",
    "--dump",
    dump,
  ]);
  assert.match(walked.out, /33\.3 % {2}sent to 10\.180\.0\.11:8080/);
  // An archive has all addresses of its node: those of loopback show that.
  const byDump = ["--from", "10.200.0.9", "--to", "10.96.0.10:80", "--dump", dump];
  assert.match((await runCommand(trace, byDump)).out, /is an address of the node/);
  writeFileSync(join(dump, "rules/addresses.txt"), "addr add 127.0.0.1/8 dev lo\naddr add 10.200.0.2/24 dev eth0\n");
  const known = await runCommand(trace, byDump);
  assert.match(known.out, /33\.3 % {2}sent to 10\.180\.0\.11:8080/);
  assert.doesNotMatch(known.out, /is an address of the node|--local/);
  // Its objects and configuration say where pods are.
  const fromPod = await runCommand(trace, ["--from", "pod", "--to", "shop/web:http", "--dump", dump]);
  assert.match(fromPod.out, /^Packet: tcp 10\.180\.0\.250 to 10\.96\.0\.10:80, /, fromPod.err);
  await assert.rejects(
    dumpFiles([at], () => true),
    /no dump in the folder/,
  );
});
