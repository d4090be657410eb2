/** No message, log or archive has the value of a secret, in any form in which a program, a person or a mistake writes it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { withoutCredentials, withoutSecrets, withoutUserInfo } from "../../src/logging/secrets.ts";
import { redacted } from "../../src/tools/cli/sysdump/redact.ts";
import { sysdump } from "../../src/tools/cli/sysdump.ts";
import { runCommand } from "./run-command.ts";

const C = "CANARY99secret";
const HIDDEN = /CANARY99|ARY99secret|Q0FOQVJZOTlzZWNyZXQ|bjpDQU5BUlk5OXNlY3JldA|dTpDQU5BUlk5OXNlY3JldA/i;
const BASE64 = Buffer.from(`u:${C}`).toString("base64");

/** Forms that logs have. */
const LOG_FORMS: readonly string[] = [
  "proxy http://user:CAN'ARY99secret@p:3128 refused",
  `proxy http://user:x@${C}@p:3128`,
  `proxy http://user:ab/${C}@p`,
  `url="http://user:a\\"b${C}@p"`,
  `proxy socks5h://${C}@p:1080`,
  `authorization refused: basic ${BASE64}`,
  `Proxy-Authorization: Basic ${BASE64}`,
  "Bearer CANARY9",
  "BEARER CANARY9",
  `Authorization: Negotiate ${C}`,
  `{"Authorization":["Bearer ${C}"]}`,
  `map[Authorization:[Bearer ${C}xx]]`,
  `X-Auth-Token: ${C}`,
  `X-Vault-Token: ${C}`,
  `--password ${C}`,
  `--password=${C}`,
  `--client-secret=${C}`,
  `pwd=${C}`,
  `PGPASSWORD=${C}`,
  `MYSQL_PWD=${C}`,
  `passphrase: ${C}`,
  `user: bob pass: ${C}`,
  `DB_PASS=${C}`,
  `token: >-\n  ${C}`,
  `password: |\n    ${C}`,
  `{"token":"${C}"}`,
  `{\\"token\\": \\"${C}\\"}`,
  `\\\\\\"token\\\\\\":\\\\\\"${C}`,
  `password: "CANARY99 secret ${C}"`,
  `password: 'it''s ${C}'`,
  `aws_secret_access_key = ${C}`,
  "AKIACANARY99SECRETXX",
  "ASIACANARY99SECRETXX",
  "ghp_CANARY99secretCANARY99secretCANARY99",
  "github_pat_CANARY99secretCANARY99",
  "glpat-CANARY99secretCANARY99",
  `xoxb-1234-${C}`,
  "AIzaSyCANARY99secretCANARY99secretCANARY",
  `client_secret=${C}&x=1`,
  `https://x/?pass=${C}`,
  `https://x/?code=${C}`,
  `https://x/?sig=${C}`,
  `-----BEGIN RSA PRIVATE KEY-----\\n${C}-abc\\n-----END RSA PRIVATE KEY-----`,
  `-----BEGIN PRIVATE KEY-----\nAAA-${C}\n-----END PRIVATE KEY-----`,
  `-----BEGIN EC PRIVATE KEY-----\nAAA-${C}`,
  `${C}CANARY\nBBBB\n-----END PRIVATE KEY-----`,
  `eyJhbGciOi.${C}.${C}`,
  `Set-Cookie: sid=${C}; Path=/`,
  `PRIVATE_KEY=${C}`,
  `ssh_key=${C}`,
  `encryptionKey: ${C}`,
  `signing-key: ${C}`,
  `accesskey=${C}`,
  `otp=${C}`,
  `the token is ${C}`,
  `the password was ${C}`,
  `token := "${C}"`,
  `token -> ${C}`,
  `token => ${C}`,
  `token：${C}`,
  `token&#58;${C}`,
  `Authorization:\r\n Bearer ${C}xx`,
];

test("logs: no form of a secret stays", () => {
  for (const form of LOG_FORMS) assert.doesNotMatch(withoutSecrets(form), HIDDEN, form);
});

test("names of Services and addresses stay", () => {
  for (const text of [
    "shop/cookie:http TCP",
    "shop/authorization:http",
    "shop/token:http TCP",
    "a basic question",
    "basic-auth in shop",
    "https://10.0.0.1:6443/api",
    '-A KUBE-SVC-ABC -m comment --comment "shop/cookie:http" -j KUBE-SEP-A',
  ]) {
    assert.equal(withoutCredentials(text), text);
  }
});

test("objects: fields with a secret, at any depth and of any type", () => {
  const user = (fields: object) => ({ users: [{ user: fields }] });
  for (const value of [
    { clusters: [{ cluster: { server: `https://u:a'b@${C}@a`, "proxy-url": `http://u:${C}'x@p` } }] },
    { clusters: [{ cluster: { "proxy-url": `http://u:x y"${C}@p` } }] },
    { cluster: { proxyURL: `http://u:${C} @p`, https_proxy: `u:${C}@p` } },
    user({ exec: { args: [C], env: [{ name: "A", value: C }], installHint: `run with --password ${C}` } }),
    user({ exec: { args: C, env: { A: C } } }),
    user({ "as-user-extra": { k: [C] } }),
    user({ passphrase: C, pass: C, pwd: C, clientKeyData: C, sshKey: C, clientCertificateData: C }),
    user({ "client-key": C, tokenFile: C }),
    user({ "auth-provider": C, authProvider: { config: { x: C } } }),
    { token: [C], nested: { token: { a: C } }, preferences: { extensions: [{ extension: { t: C } }] } },
    { password: 99123 },
  ]) {
    assert.doesNotMatch(JSON.stringify(redacted(value)), /CANARY99|99123/);
  }
  assert.equal(withoutUserInfo("http://u:a'b@c@proxy:3128"), "http://proxy:3128");
  assert.equal(withoutUserInfo("http://proxy:3128/"), "http://proxy:3128/");
});

/** A kubeconfig whose user, or cluster, has a mistake beside a secret. */
const MISTAKES: readonly (readonly [user: string, cluster?: string])[] = [
  ["token: [CANARY]"],
  ["token: {CANARY: x}"],
  ["token: 987650123456"],
  ["username: u\n    password: 987650123456"],
  ["username: u\n    password: [CANARY]"],
  ["client-key-data: CANARY!!\n    client-certificate-data: CANARY"],
  ["client-key-data: [CANARY]"],
  ["exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [[CANARY]], interactiveMode: Never}"],
  ["exec: {apiVersion: client.authentication.k8s.io/v1, command: x, env: [CANARY], interactiveMode: Never}"],
  [
    "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, env: [{name: A, value: [CANARY]}], interactiveMode: Never}",
  ],
  [
    `exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ["-c", "echo $X >&2; exit 3"], env: [{name: X, value: CANARY}], interactiveMode: Never}`,
  ],
  [
    `exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ["-c", "echo password: CANARY >&2; exit 3"], interactiveMode: Never}`,
  ],
  ["exec: CANARY"],
  ["auth-provider: CANARY"],
  ["auth-provider: {name: {id-token: CANARY}}"],
  ["token: *CANARY"],
  ["token: !CANARY"],
  ['token: "CANARY\\qCANARY"'],
  ["token: {CANARY"],
  ["token: |CANARY"],
  ["token: CANARY: x"],
  ['token: "x" CANARY'],
  ["as-user-extra: CANARY\n    as: u"],
  ["token: x", `proxy-url: "ftp://u:p@CANARY'x@h"`],
  ["token: x", `server: "https://u:CANARY@h/?x=1"`],
  ["token: x", `server: "ftp://u:p@CANARY@h"`],
];

test("a kubeconfig with a mistake: its secrets are in no message, and not in the archive", async (t) => {
  const at = folder(t);
  for (const [index, [user, cluster = 'server: "http://127.0.0.1:1"']] of MISTAKES.entries()) {
    const path = join(at, `kubeconfig-${index}`);
    const server = cluster.startsWith("server") ? cluster : `server: "https://127.0.0.1:1", ${cluster}`;
    writeFileSync(path, kubeconfig(user, user.includes("exec") ? 'server: "https://127.0.0.1:1"' : server));
    await noSecretIn(path, user + cluster);
  }
  const json = join(at, "broken.json");
  writeFileSync(json, '{"users": [{"user": {"token": CANARY}}]}');
  await noSecretIn(json, "JSON");
  const lists = join(at, "lists");
  writeFileSync(
    lists,
    "current-context: x\nusers: {u: {token: CANARY}}\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n",
  );
  await noSecretIn(lists, "users in another form");
});

function kubeconfig(user: string, cluster: string): string {
  const users = `users:\n- name: u\n  user:\n    ${user}\n`;
  const rest = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
  return `apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {${cluster}}}]\n${users}${rest}`;
}

async function noSecretIn(path: string, what: string): Promise<void> {
  const archive = `${path}.tgz`;
  const words = ["-o", archive, "--kubeconfig", path, "--metrics", "127.0.0.1:9", "--healthz", "127.0.0.1:9"];
  const { status, out, err } = await runCommand(sysdump, [...words, "--node", "node-a"]);
  assert.equal(status, 0, err);
  const dump = `${path}.dump`;
  mkdirSync(dump);
  execFileSync("tar", ["-xzf", archive, "-C", dump, "--strip-components=1"]);
  for (const text of [out, err, execFileSync("grep", ["-rha", "", dump], { encoding: "utf8", maxBuffer: 2 ** 28 })]) {
    const found = text.search(/CANARY|98765/);
    assert.equal(found, -1, `${what}: ${text.slice(Math.max(0, found - 200), found + 50)}`);
  }
}

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "kpts-secrets-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}
