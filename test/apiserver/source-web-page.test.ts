/** The API source with a server that responds to watches with a web page. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../testkit/support/patience.ts";
import { WEB_PAGE } from "./faults.ts";
import { failing, some, start } from "./source-with-objects.ts";

test("watches that are answered with a web page leave no connections behind", async (t) => {
  const { server } = await start(t, {
    waitsForSync: false,
    prepare: (prepared) => {
      some(prepared);
      failing(prepared, "services", WEB_PAGE, "watch");
    },
  });
  await until("some attempts", () => server.seen("watch", "services").length >= 12);
  // Watches of three resources, lists of the fourth, and current requests.
  assert.ok(server.connections <= 8, `${server.connections} connections`);
});
