import assert from "node:assert/strict";
import { test } from "node:test";
import { projectEndpointSlice } from "../src/cluster/projection/endpoint-slice.ts";
import { projectService } from "../src/cluster/projection/service.ts";
import { apiService, apiSlice } from "./api-objects.ts";
import { type ApiServerFigures, apiServerTable, judgeApiServer, type StreamFigures } from "./apiserver.ts";
import { figuresOf } from "./memory.ts";
import { engineOptions, memoryEnvironment } from "./workers.ts";

const STREAM: StreamFigures = {
  events: 25_000,
  bytesPerEvent: 2500,
  cpuUs: 60,
  kernelCpuUs: 5,
  childrenCpuUs: 0,
  rssMb: 210,
};
const SOURCE = { ...STREAM, allocatedBytes: 10_000, pauseShare: 0.01 };

function figures(changes: Partial<ApiServerFigures> = {}): ApiServerFigures {
  return {
    mode: "nftables",
    format: "protobuf",
    services: 10_000,
    endpointsEach: 5,
    listBytes: 34e6,
    listedMs: 1500,
    syncedMs: 8000,
    syncedCpuMs: 7000,
    peakMb: 220,
    settledMb: 150,
    fileMb: 55,
    stream: STREAM,
    afterStreamMb: 155,
    source: SOURCE,
    ...changes,
  };
}

test("each target is missed by what exceeds it", () => {
  const missed = (changes: Partial<ApiServerFigures>) =>
    judgeApiServer([figures(changes)])
      .filter(({ passed }) => !passed)
      .map(({ text }) => text)
      .join("\n");
  assert.equal(missed({}), "");
  assert.match(missed({ settledMb: 201 }), /^nftables[^:]*: MB resident once settled: 201[^\n]*$/);
  assert.match(missed({ afterStreamMb: 201 }), /^nftables[^:]*: MB after the events, settled: 201[^\n]*$/);
  assert.match(missed({ source: { ...SOURCE, cpuUs: 101 } }), /API source alone[^\n]* 101, [^\n]*$/);
});

test("the table has a column per mode and format", () => {
  const lines = apiServerTable([figures(), figures({ mode: "iptables", format: "json" })]).split("\n");
  assert.match(lines[0] ?? "", /nftables, protobuf, 10000 × 5 +iptables, json, 10000 × 5$/);
  assert.ok(lines.some((line) => /allocated per event +10\.0 kB +10\.0 kB$/.test(line)));
});

test("the objects that are served are usable ones", () => {
  assert.ok(projectService(apiService(7)).ok);
  const slice = projectEndpointSlice(apiSlice(7, 5, 1, 0));
  assert.ok(slice.ok && slice.record.endpoints.length === 5 && slice.warnings.length === 0);
});

test("the program is measured with the options that it is installed with", () => {
  assert.ok(engineOptions().some((option) => option.startsWith("--max-semi-space-size=")));
  assert.ok("MALLOC_ARENA_MAX" in memoryEnvironment());
  assert.ok(figuresOf(process.pid).rssMb > 10);
});
