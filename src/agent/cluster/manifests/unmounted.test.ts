/** An unmounted volume: its mount point still exists, and is empty. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { listFolder } from "./folder-listing.ts";
import { manifestBench, serviceYaml } from "./testing/manifest-bench.ts";

test("the Services of a folder whose volume is unmounted stay until it is back", async () => {
  let device = "volume";
  const list: typeof listFolder = async (root) => {
    const listing = await listFolder(root);
    const directories = new Map(Array.from(listing.directories, ([path, id]) => [path, id.replace(/^[^:]*/, device)]));
    return { ...listing, directories };
  };
  using it = await manifestBench({ "shop/a.yaml": serviceYaml("a"), "b.yaml": serviceYaml("b") }, list);
  it.temp.remove("shop");
  it.temp.remove("b.yaml");
  device = "root";
  for (let looks = 0; looks < 3; looks++) {
    await assert.rejects(it.look(1_000), /is empty, and on another file system than before, as if its volume had been/);
  }
  assert.deepEqual(it.sink.take(), []);
  device = "volume mounted again";
  it.temp.write("shop/a.yaml", serviceYaml("a", 81));
  assert.deepEqual((await it.settle()).sort(), ["delete services/default/b", "update services/default/a"]);
  it.temp.remove("shop/a.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/a"]);
});
