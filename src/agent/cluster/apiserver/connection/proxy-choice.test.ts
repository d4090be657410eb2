import assert from "node:assert/strict";
import { test } from "node:test";
import { proxyFor } from "./proxy-choice.ts";

const PROXY = "http://proxy:3128";
const choose = (server: string, env: Record<string, string>) => proxyFor(new URL(server), undefined, env);

test("the kubeconfig's proxy wins over the environment, also over NO_PROXY", () => {
  const env = { HTTPS_PROXY: "http://other", NO_PROXY: "*" };
  assert.equal(proxyFor(new URL("https://cp"), PROXY, env), PROXY);
});

test("HTTPS_PROXY is for https, HTTP_PROXY for http, small letters work, a scheme may be missing", () => {
  assert.equal(choose("https://cp", { HTTPS_PROXY: PROXY }), PROXY);
  assert.equal(choose("https://cp", { HTTP_PROXY: PROXY }), undefined);
  assert.equal(choose("http://cp", { http_proxy: PROXY }), PROXY);
  assert.equal(choose("https://cp", { https_proxy: "proxy:1" }), "http://proxy:1");
});

test("NO_PROXY is read as Go programs read it", () => {
  const through = (server: string, noProxy: string) => choose(server, { HTTPS_PROXY: PROXY, NO_PROXY: noProxy });
  const cases: readonly [server: string, noProxy: string, isDirect: boolean][] = [
    ["https://10.96.0.1", "192.168.0.0/16, 10.96.0.0/12", true],
    ["https://10.112.0.1", "10.96.0.0/12", false],
    ["https://[fd00::1]:6443", "fd00::/8", true],
    ["https://10.0.0.1:6443", "10.0.0.1:6443", true],
    ["https://10.0.0.1:6443", "10.0.0.1:443", false],
    ["https://cp.example.com", "example.com", true],
    ["https://cp.example.com", ".example.com", true],
    ["https://cp.example.com", "*.example.com", true],
    ["https://example.com", ".example.com", false],
    ["https://example.com", "example.com:443", true],
    ["https://badexample.com", "example.com", false],
    ["https://cp", "*", true],
    ["https://localhost:6443", "", true],
    ["https://127.0.0.1:6443", "", true],
    ["https://[::1]:6443", "", true],
    ["https://cp", "", false],
  ];
  for (const [server, noProxy, isDirect] of cases) {
    assert.equal(through(server, noProxy), isDirect ? undefined : PROXY, `${server} with NO_PROXY=${noProxy}`);
  }
});
