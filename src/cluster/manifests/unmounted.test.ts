/** An unmounted volume: its mount point still exists, and is empty. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { listFolder } from "./folder-listing.ts";
import { manifestBench, serviceYaml } from "./testing/manifest-bench.ts";

/** Lists the folder as if its subtree `directory` were on that device. */
function onDevice(directory: string): { device: string; readonly list: typeof listFolder } {
  const volume = {
    device: "volume",
    list: async (root: string) => {
      const listing = await listFolder(root);
      const moved = Array.from(listing.directories, ([path, identity]): [string, string] => {
        const isOfVolume = `${path}/`.startsWith(`${root}/${directory}`);
        return [path, isOfVolume ? identity.replace(/^[^:]*/, volume.device) : identity];
      });
      return { ...listing, directories: new Map(moved) };
    },
  };
  return volume;
}

test("the Services of a folder whose volume is unmounted stay until it is back", async () => {
  const volume = onDevice("");
  using it = await manifestBench({ "shop/a.yaml": serviceYaml("a"), "b.yaml": serviceYaml("b") }, volume.list);
  it.temp.remove("shop");
  it.temp.remove("b.yaml");
  volume.device = "root";
  for (let looks = 0; looks < 3; looks++) {
    await assert.rejects(it.look(1_000), /is empty, and on another file system than before, as if its volume had been/);
  }
  assert.deepEqual(it.sink.take(), []);
  volume.device = "volume mounted again";
  it.temp.write("shop/a.yaml", serviceYaml("a", 81));
  assert.deepEqual((await it.settle()).sort(), ["delete services/default/b", "update services/default/a"]);
  it.temp.remove("shop/a.yaml");
  assert.deepEqual(await it.settle(), ["delete services/default/a"]);
});

test("a volume below the folder is named while it is unmounted, and other files change", async () => {
  const volume = onDevice("shop/");
  using it = await manifestBench({ "shop/a.yaml": serviceYaml("a"), "b.yaml": serviceYaml("b") }, volume.list);
  it.temp.remove("shop/a.yaml");
  volume.device = "root";
  it.temp.write("b.yaml", serviceYaml("b", 81));
  assert.deepEqual(await it.settle(), ["update services/default/b"]);
  assert.match(it.problems().join(), /^: is empty, and on another file system .* what it held before stays in force$/);
  assert.deepEqual(await it.settle(), []);
  volume.device = "volume";
  assert.deepEqual(await it.settle(), ["delete services/default/a"], "mounted again, and empty");
  assert.deepEqual(it.problems(), []);
});

test("a volume that fails before it is unmounted counts as unmounted, too", async () => {
  const volume = onDevice("shop/");
  let isStale = false;
  const list: typeof listFolder = async (root) => {
    const listing = await volume.list(root);
    if (!isStale) return listing;
    const isLeft = (path: string): boolean => !`${path}/`.startsWith(`${root}/shop/`);
    const files = new Map([...listing.files].filter(([file]) => isLeft(file)));
    const directories = new Map([...listing.directories].filter(([directory]) => isLeft(directory)));
    return { ...listing, files, directories, unreadable: new Map([[`${root}/shop`, "cannot be read: ESTALE"]]) };
  };
  using it = await manifestBench({ "shop/a.yaml": serviceYaml("a"), "b.yaml": serviceYaml("b") }, list);
  isStale = true;
  assert.deepEqual(await it.settle(), []);
  isStale = false;
  it.temp.remove("shop/a.yaml");
  volume.device = "root";
  assert.deepEqual(await it.settle(), []);
  assert.match(it.problems().join(), /is empty, and on another file system than before/);
});
