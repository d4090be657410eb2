/** The unit of the Debian package, and the kustomization: what they name is there. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { CHECKOUT } from "../docs/markdown.ts";

const read = (path: string): string => readFileSync(join(CHECKOUT, path), "utf8");

test("the unit has the folder of its socket, and waits for the files that the configuration names", () => {
  const unit = read("deploy/package/kube-proxy-ts.service");
  const fields = (name: string) => Array.from(unit.matchAll(new RegExp(`^${name}=(.*)$`, "gm")), ([, value]) => value);
  const [start = ""] = fields("ExecStart");
  const [, folder] = /--inspect-socket=\/run\/([^/]+)\//.exec(start) ?? [];
  assert.deepEqual(fields("RuntimeDirectory"), [folder]);
  const [, config = ""] = /--config=(\S+)/.exec(start) ?? [];
  const { clientConnection } = parse(read("deploy/package/config.yaml"));
  assert.deepEqual(fields("ConditionPathExists"), [config, clientConnection.kubeconfig]);
});

test("the kustomization names the image once, for manifests that have it", () => {
  const { resources, images } = parse(read("deploy/kustomization.yaml"));
  for (const path of resources) assert.ok(existsSync(join(CHECKOUT, "deploy", path)), path);
  const { version } = JSON.parse(read("package.json"));
  assert.equal(images.length, 1);
  assert.deepEqual([images[0].name, images[0].newTag], ["kube-proxy-ts", version]);
  assert.match(resources.map((path: string) => read(`deploy/${path}`)).join(), /image: kube-proxy-ts:/);
});
