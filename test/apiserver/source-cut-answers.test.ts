/** The API source behind a proxy that truncates responses as if they were complete, which is no format error. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../testkit/support/patience.ts";
import { service } from "./example-objects.ts";
import { some, start } from "./source-with-objects.ts";

for (const [title, services] of [
  ["as it is", 20],
  ["compressed", 2_000],
] as const) {
  test(`a list ${title} that is cut once is asked for again in the same format`, async (t) => {
    let cuts = 0;
    const { server, sink, log } = await start(t, {
      prepare: (prepared) => {
        some(prepared);
        for (let index = 0; index < services; index++) prepared.put("services", service(index));
        prepared.switches.hasWatchList = false;
        prepared.switches.fault = ({ plural, verb }) =>
          plural === "services" && verb === "list" && cuts++ === 0
            ? { kind: "truncate", afterBytes: 1_000 }
            : undefined;
      },
    });
    await until("the services", () => sink.state.services.size === services);
    assert.ok(cuts > 1);
    const asked = server.seen("list", "services").map(({ headers }) => headers.accept?.split(";")[0]);
    assert.deepEqual(new Set(asked), new Set(["application/vnd.kubernetes.protobuf"]));
    assert.deepEqual(
      log.lines.filter(({ message }) => message.startsWith("Cannot read a protobuf response")),
      [],
    );
    assert.match(log.errors()[0] ?? "", /list services: .*(?:ends in the middle of the list|ends too early)/);
  });
}
