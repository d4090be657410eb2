import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type FrontendConflict, logConflicts, summariesOf } from "../../model/owned-services.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { RecordingLogger } from "../sync/testing/recorders.ts";
import { costlyService, frontendConflict, serviceHealthFailure, silentEndpoint } from "./node-events.ts";

const FIRST: FrontendConflict = {
  frontend: "tcp 10.96.0.10:53",
  loser: servicePortName("guest", "taker", "p", "TCP"),
  loserKind: "external-ip",
  owner: servicePortName("kube-system", "dns", "dns-tcp", "TCP"),
  ownerKind: "cluster-ip",
};

test("the log names the service port that lost, the field, the address and who has it", () => {
  const log = new RecordingLogger();
  logConflicts(summariesOf([FIRST]), log);
  const line = JSON.stringify(log);
  for (const part of ["guest/taker:p", "spec.externalIPs", "tcp 10.96.0.10:53", "kube-system/dns:dns-tcp"]) {
    assert.ok(line.includes(part), part);
  }
});

test("two Services that claim many addresses get one line, and one event", () => {
  const log = new RecordingLogger();
  const other = { ...FIRST, owner: servicePortName("kube-system", "another", "p", "TCP") };
  const many = Array.from({ length: 5_000 }, (_, index) => ({ ...FIRST, frontend: `tcp 10.96.0.10:${index + 1}` }));
  const summaries = summariesOf([...many, other]);
  logConflicts(summaries, log);
  const [line = "", another = ""] = log.lines;
  assert.equal(log.lines.length, 2);
  assert.match(line, /moreOfThisPair\W+4999/);
  assert.doesNotMatch(another, /moreOfThisPair/);
  const [first] = summaries;
  assert.match(
    first === undefined ? "" : frontendConflict("node-a", first).note,
    /; nor at 4999 more of \S+ addresses; /,
  );
});

test("the Service that lost gets a warning that says what to do", () => {
  const event = frontendConflict("node-a", { first: FIRST, count: 1 });
  assert.deepEqual(
    { ...event, note: "" },
    {
      regarding: { apiVersion: "v1", kind: "Service", namespace: "guest", name: "taker" },
      type: "Warning",
      reason: "FrontendConflict",
      action: "AssignFrontend",
      note: "",
    },
  );
  assert.match(event.note, /node-a: spec\.externalIPs: tcp 10\.96\.0\.10:53 belongs to kube-system\/dns:dns-tcp/);
  assert.match(event.note, /give one of them another address or port/);
});

test("a Service that took long to program gets a warning that says how long, and what to do", () => {
  const { note, ...event } = costlyService("node-a", {
    service: "shop/many",
    servicePorts: 10_000,
    milliseconds: 12_840,
  });
  assert.deepEqual(event, {
    regarding: { apiVersion: "v1", kind: "Service", namespace: "shop", name: "many" },
    type: "Warning",
    reason: "CostlyService",
    action: "ProgramService",
  });
  assert.match(note, /^node node-a: programming this Service \(service ports: 10000\) took 12\.8 s; .*fewer ports$/);
});

test("operators find each reason of a Service's events in the guide's table", () => {
  const guide = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const [, table = ""] = /\n## Events\n(.*?)\n## /s.exec(guide) ?? [];
  for (const { reason } of [
    serviceHealthFailure("node-a", "shop/web", 30_000, new Error("taken")),
    costlyService("node-a", { service: "shop/many", servicePorts: 2, milliseconds: 1_500 }),
    frontendConflict("node-a", { first: FIRST, count: 1 }),
    silentEndpoint("node-a", "shop/web", "10.0.0.1:80 has answered none"),
  ]) {
    assert.match(table, new RegExp(`\\| Service, warning \\| \`${reason}\` \\|`));
  }
});
