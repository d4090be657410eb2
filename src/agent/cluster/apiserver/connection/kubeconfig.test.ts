import assert from "node:assert/strict";
import { test } from "node:test";
import { ClientConfigError } from "./client-config.ts";
import { resolveKubeconfig } from "./kubeconfig.ts";

const PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const data = (text: string): string => Buffer.from(text).toString("base64");

/** The kubeconfig from kubeadm's ConfigMap (reference operation.md §14.2), with parts replaced. */
function kubeadm(cluster: object = {}, user: object = {}): Record<string, unknown> {
  return {
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      {
        name: "default",
        cluster: {
          "certificate-authority": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
          server: "https://cp.example:6443",
          ...cluster,
        },
      },
    ],
    contexts: [{ name: "default", context: { cluster: "default", namespace: "default", user: "default" } }],
    "current-context": "default",
    users: [{ name: "default", user: { tokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token", ...user } }],
  };
}

const resolve = (content: unknown, master = "") =>
  resolveKubeconfig({ files: [{ path: "/etc/kp/kubeconfig.conf", content }], master });

function refusal(content: unknown, master = ""): string {
  let message = "";
  assert.throws(
    () => resolve(content, master),
    (error) => {
      assert.ok(error instanceof ClientConfigError, String(error));
      message = error.message;
      return true;
    },
  );
  return message;
}

test("kubeadm's kubeconfig resolves to server, CA file and token file", () => {
  const config = resolve(kubeadm());
  assert.equal(config.server.href, "https://cp.example:6443/");
  assert.deepEqual(config.ca, { kind: "file", path: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" });
  assert.deepEqual(config.authentication, {
    kind: "tokenFile",
    path: "/var/run/secrets/kubernetes.io/serviceaccount/token",
  });
  assert.equal(config.isServerVerified, true);
});

test("--master takes the place of the server and keeps everything else", () => {
  const config = resolve(kubeadm(), "https://other:7443/prefix");
  assert.equal(config.server.href, "https://other:7443/prefix");
  assert.equal(config.authentication.kind, "tokenFile");
  assert.equal(resolve(kubeadm({ server: "" }), "bare:1234").server.protocol, "https:", "TLS settings make it https");
});

test("relative paths are meant from the kubeconfig's folder", () => {
  const config = resolve(kubeadm({ "certificate-authority": "pki/ca.pem" }, { tokenFile: "../token" }));
  assert.deepEqual(config.ca, { kind: "file", path: "/etc/kp/pki/ca.pem" });
  assert.deepEqual(config.authentication, { kind: "tokenFile", path: "/etc/token" });
});

test("an absolute path is not shortened, for a folder before .. may be a link", () => {
  const exec = { apiVersion: "client.authentication.k8s.io/v1beta1", command: "/opt/current/../plugin" };
  const ca = "/etc/pki/current/../ca.pem";
  const config = resolve(kubeadm({ "certificate-authority": ca }, { tokenFile: undefined, exec }));
  assert.deepEqual(config.ca, { kind: "file", path: ca });
  assert.ok(config.authentication.kind === "exec");
  assert.equal(config.authentication.plugin.command, exec.command);
});

test("a list item without a value is an empty text, as in upstream's client", () => {
  const exec = { apiVersion: "client.authentication.k8s.io/v1beta1", command: "plugin", args: ["--token", null] };
  const config = resolve(kubeadm({}, { tokenFile: undefined, exec, as: "jane", "as-groups": [null, "a"] }));
  assert.ok(config.authentication.kind === "exec");
  assert.deepEqual(config.authentication.plugin.args, ["--token", ""]);
  assert.deepEqual(config.impersonation, { "Impersonate-User": "jane", "Impersonate-Group": ["", "a"] });
});

test("embedded certificates, TLS server name, proxy and impersonation are taken over", () => {
  const config = resolve(
    kubeadm(
      {
        "certificate-authority": undefined,
        "certificate-authority-data": data(PEM),
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "disable-compression": true,
      },
      {
        tokenFile: undefined,
        "client-certificate-data": data(PEM),
        "client-key": "key.pem",
        as: "jane",
        "as-groups": ["a", "b"],
        "as-user-extra": { "scopes/x": ["1"] },
      },
    ),
  );
  assert.deepEqual(config.ca, { kind: "data", text: PEM });
  assert.equal(config.serverName, "kubernetes");
  assert.equal(config.proxyUrl, "http://proxy:3128");
  assert.equal(config.isCompressionDisabled, true);
  assert.deepEqual(config.clientCertificate?.key, { kind: "file", path: "/etc/kp/key.pem" });
  assert.deepEqual(config.authentication, { kind: "none" });
  assert.deepEqual(config.impersonation, {
    "Impersonate-User": "jane",
    "Impersonate-Group": ["a", "b"],
    "Impersonate-Extra-scopes%2Fx": ["1"],
  });
});

test("a token file wins over a token, as in upstream's client", () => {
  assert.equal(resolve(kubeadm({}, { token: "abc" })).authentication.kind, "tokenFile");
  assert.deepEqual(resolve(kubeadm({}, { tokenFile: "", token: "abc" })).authentication, {
    kind: "token",
    token: "abc",
  });
});

test("an exec plugin's command is resolved and its environment read", () => {
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "./get-token",
    args: ["--cluster", "x"],
    env: [{ name: "PROFILE", value: "prod" }],
    interactiveMode: "Never",
    provideClusterInfo: true,
  };
  const { authentication } = resolve(kubeadm({}, { tokenFile: undefined, exec }));
  assert.deepEqual(authentication, {
    kind: "exec",
    plugin: {
      apiVersion: "client.authentication.k8s.io/v1",
      command: "/etc/kp/get-token",
      args: ["--cluster", "x"],
      env: { PROFILE: "prod" },
      installHint: "",
      provideClusterInfo: true,
    },
  });
});

test("what is wrong is named with file, entry and field", () => {
  const exec = (fields: object) => kubeadm({}, { tokenFile: undefined, exec: fields });
  const cases: readonly [unknown, RegExp][] = [
    [null, /\/etc\/kp\/kubeconfig\.conf: the file is empty/],
    ["text", /must be a Config object/],
    [{ ...kubeadm(), "current-context": "" }, /current-context is not set/],
    [{ ...kubeadm(), "current-context": "prod" }, /current-context "prod" is not among the contexts/],
    [{ ...kubeadm(), users: [] }, /user "default" is not among the users/],
    [{ ...kubeadm(), clusters: "x" }, /clusters? .*(must be a list|is not among)/],
    [kubeadm({ server: "" }), /no server found for cluster "default"/],
    [kubeadm({ server: "ftp://x" }), /cluster "default": server must be the URL of an API server.*"ftp:\/\/x"/],
    [kubeadm({ "insecure-skip-tls-verify": true }), /certificate-authority together with insecure-skip-tls-verify/],
    [kubeadm({ "insecure-skip-tls-verify": "yes" }), /insecure-skip-tls-verify must be true or false, got "yes"/],
    [
      kubeadm({ "certificate-authority-data": data(PEM) }),
      /certificate-authority and certificate-authority-data are both/,
    ],
    [
      kubeadm({ "certificate-authority": "", "certificate-authority-data": "%%%" }),
      /must be the base64 text of a PEM file/,
    ],
    [kubeadm({ "proxy-url": "socks5://p" }), /proxy-url must be an http:\/\/ or https:\/\/ URL.*socks5/],
    [
      kubeadm({}, { "client-certificate": "c.pem" }),
      /client-key-data or client-key must be specified for user "default"/,
    ],
    [kubeadm({}, { token: "t", username: "u" }), /more than one authentication method/],
    [kubeadm({}, { "auth-provider": { name: "oidc" } }), /auth-provider "oidc" is not supported/],
    [kubeadm({}, { "as-groups": ["g"] }), /need "as"/],
    [
      exec({ apiVersion: "client.authentication.k8s.io/v1alpha1", command: "x" }),
      /exec\.apiVersion must be .*v1alpha1/,
    ],
    [exec({ apiVersion: "client.authentication.k8s.io/v1beta1" }), /exec\.command must name the program/],
    [
      exec({ apiVersion: "client.authentication.k8s.io/v1", command: "x", interactiveMode: "Always" }),
      /interactiveMode must not be Always/,
    ],
    [
      exec({ apiVersion: "client.authentication.k8s.io/v1", command: "x" }),
      /interactiveMode must be Never or IfAvailable/,
    ],
  ];
  for (const [content, expected] of cases) assert.match(refusal(content), expected);
  assert.match(refusal(kubeadm(), "http://"), /--master must be the URL of an API server/);
});

test("several files are merged as kubectl does: the first to name something counts, paths are of their own file", () => {
  const first = {
    contexts: [{ name: "a", context: { cluster: "c", user: "u", namespace: "first" } }],
    users: [{ name: "u", user: { token: "first" } }],
  };
  const second = {
    "current-context": "a",
    contexts: [{ name: "a", context: { cluster: "c", user: "u", namespace: "second" } }],
    clusters: [{ name: "c", cluster: { server: "https://second", "certificate-authority": "ca.pem" } }],
    users: [{ name: "u", user: { tokenFile: "token" } }],
  };
  const third = {
    "current-context": "b",
    contexts: [{ name: "b", context: { cluster: "c", user: "v" } }],
    users: [{ name: "v", user: { "client-certificate": "tls.crt", "client-key": "tls.key" } }],
  };
  const files = [
    { path: "/one/config", content: first },
    { path: "/empty/config", content: undefined },
    { path: "/two/config", content: second },
    { path: "/three/config", content: third },
  ];
  const config = resolveKubeconfig({ files, master: "" });
  assert.equal(config.namespace, "first");
  assert.deepEqual(config.authentication, { kind: "token", token: "first" });
  assert.deepEqual(config.ca, { kind: "file", path: "/two/ca.pem" });
  const other = resolveKubeconfig({ files, master: "", context: "b" });
  assert.deepEqual(other.clientCertificate?.key, { kind: "file", path: "/three/tls.key" });
  assert.throws(
    () => resolveKubeconfig({ files, master: "", context: "z" }),
    /kubeconfig \/one\/config, \/empty\/config, \/two\/config, \/three\/config: context "z" is not among the contexts/,
  );
});
