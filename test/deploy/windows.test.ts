/** The manifest for Windows nodes: its configuration is read and checked, and nothing of Linux is in it. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";
import { applyPlatformDefaults, resolveDocument } from "../../src/agent/settings/defaults.ts";
import { decodeConfiguration } from "../../src/agent/settings/v1alpha1-decode.ts";
import { checkConfig } from "../../src/agent/settings/validate.ts";

const file = fileURLToPath(new URL("../../deploy/windows/daemonset.yaml", import.meta.url));
const [configMap, daemonSet] = parseAllDocuments(readFileSync(file, "utf8"), { uniqueKeys: true }).map((document) => {
  assert.deepEqual([document.errors, document.warnings], [[], []]);
  return document.toJS();
});

test("the configuration is that of the kernelspace mode", () => {
  const { document, strictError } = decodeConfiguration(configMap.data["config.conf"]);
  assert.equal(strictError, undefined);
  const checked = checkConfig(applyPlatformDefaults(resolveDocument(document), "win32"));
  assert.ok(checked.ok, checked.ok ? "" : checked.message);
  assert.equal(checked.config.mode, "kernelspace");
  assert.notEqual(checked.config.winkernel.networkName, "");
});

test("the pod is a HostProcess container on Windows nodes, and its paths are Windows' own", () => {
  const { spec } = daemonSet.spec.template;
  assert.deepEqual(spec.securityContext.windowsOptions, { hostProcess: true, runAsUserName: "NT AUTHORITY\\system" });
  assert.equal(spec.hostNetwork, true);
  assert.deepEqual(spec.nodeSelector, { "kubernetes.io/os": "windows" });
  const [container] = spec.containers;
  assert.equal(container.securityContext, undefined);
  const mount = container.volumeMounts[0].mountPath;
  assert.ok(container.args.includes(`--config=${mount}\\config.conf`), container.args.join(" "));
  for (const text of [...container.command, mount]) assert.match(text, /^C:\\/);
});
