/** An invalid `proxy-url` of a kubeconfig is refused when the kubeconfig is read; the error omits its password. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { resolveKubeconfig } from "./kubeconfig.ts";

for (const proxyUrl of ["socks5://user:secret@proxy.example:1080", "http://user:sec#ret@proxy.example:3128"]) {
  test(proxyUrl, () => {
    const content = {
      "current-context": "c",
      contexts: [{ name: "c", context: { cluster: "c" } }],
      clusters: [{ name: "c", cluster: { server: "https://cp.example:6443", "proxy-url": proxyUrl } }],
    };
    assert.throws(
      () => resolveKubeconfig({ files: [{ path: "/etc/kp/kubeconfig", content }], master: "" }),
      ({ message }: Error) => {
        assert.match(
          message,
          /cluster "c": proxy-url must be an http:\/\/ or https:\/\/ URL .*, got "\w+:\/\/proxy\.example:\d+"$/,
        );
        return true;
      },
    );
  });
}
