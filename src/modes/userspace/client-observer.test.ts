import assert from "node:assert/strict";
import { test } from "node:test";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip } from "../../model/testing/records.ts";
import { observeClients } from "./runtime.ts";

const name = servicePortName("shop", "web", "http", "TCP");
const client = { address: ip("10.0.0.9"), port: 1234 };

test("every event is counted under its protocol; of many clients that are sent away one line tells in ten seconds", () => {
  const counts = new Map<string, number>();
  const count =
    (what: string) =>
    (protocol: string, ...more: readonly unknown[]) => {
      const key = [what, protocol, ...more].join(" ");
      counts.set(key, (counts.get(key) ?? 0) + 1);
    };
  const lines: string[] = [];
  const log: Logger = {
    ...silentLogger,
    error: (message, error, facts) => void lines.push(`${message}: ${error} ${JSON.stringify(facts)}`),
  };
  let nowMs = 0;
  const observer = observeClients(name, {
    metrics: {
      opened: count("opened"),
      closed: count("closed"),
      bytes: count("bytes"),
      dialFailed: count("dial failed"),
      refused: count("refused"),
    },
    monotonicMs: () => nowMs,
    log,
  });
  observer.opened(client);
  observer.bytes("in", 7);
  observer.bytes("out", 8);
  observer.closed(client);
  observer.dialFailed(client, "ECONNREFUSED");
  for (const atMs of [0, 1, 9_999, 10_000, 10_001]) {
    nowMs = atMs;
    observer.refused(client, "no endpoint");
  }
  assert.deepEqual(Object.fromEntries(counts), {
    "opened TCP": 1,
    "bytes TCP in 7": 1,
    "bytes TCP out 8": 1,
    "closed TCP": 1,
    "dial failed TCP": 1,
    "refused TCP": 5,
  });
  const line = (clients: number) =>
    `Failed to connect to an endpoint: Error: no endpoint {"service":"shop/web:http","protocol":"TCP","client":"10.0.0.9:1234","clients":${clients}}`;
  assert.deepEqual(lines, [line(1), line(3)]);
});
