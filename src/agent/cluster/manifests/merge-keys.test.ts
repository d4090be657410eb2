/** YAML merge keys, which kubectl supports. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseManifest } from "./testing/manifest-bench.ts";

test("a merged port keeps its protocol, or the file is refused", () => {
  const { objects, problems } = parseManifest(
    `apiVersion: v1
kind: Service
metadata: { name: dns }
spec:
  clusterIP: 10.96.0.10
  ports:
  - &port { name: dns, protocol: UDP, port: 53 }
  - <<: *port
    name: dns-alt
    port: 5353
`,
    "dns.yaml",
  );
  if (problems.length > 0) return;
  const record = [...objects.values()][0]?.found?.record;
  assert.ok(record !== undefined && "ports" in record);
  const ports = record.ports.map(({ name, protocol }) => `${name} ${protocol}`);
  assert.deepEqual(ports, ["dns UDP", "dns-alt UDP"]);
});
