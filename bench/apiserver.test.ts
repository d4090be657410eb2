import assert from "node:assert/strict";
import { test } from "node:test";
import { projectEndpointSlice } from "../src/model/projection/endpoint-slice.ts";
import { projectService } from "../src/model/projection/service.ts";
import { apiService, apiSlice } from "./api-objects.ts";
import { figuresOf } from "./memory.ts";
import { engineOptions, memoryEnvironment } from "./workers.ts";

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
