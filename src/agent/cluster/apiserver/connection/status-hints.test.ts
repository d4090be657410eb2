/** The advice in a refusal applies to the request that was refused. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { statusError } from "./status.ts";

const said = (request: string, code: number, message: string): string =>
  statusError(request, { kind: "Status", code, message }, code).message;
const ROLE = /: bind the ClusterRole system:node-proxier to this user$/;
const SERVED = /: the API server does not serve this resource/;

test("the proxy's ClusterRole is named for what it allows, and for nothing else", () => {
  for (const request of ["list services", "watch endpointslices", "get nodes", "create events"]) {
    assert.match(said(request, 403, "is forbidden"), ROLE, request);
  }
  for (const request of ["patch nodes", "list pods", "list configmaps", "get nodes/proxy"]) {
    assert.equal(said(request, 403, "is forbidden"), `${request}: 403: is forbidden`);
  }
});

test("a Node or a namespace that is not there is not taken for a resource that is not served", () => {
  assert.match(said("list servicecidrs", 404, "the server could not find the requested resource"), SERVED);
  for (const [request, message] of [
    ["get nodes", 'nodes "node-a" not found'],
    ["create events", 'namespaces "gone" not found'],
  ] as const) {
    assert.equal(said(request, 404, message), `${request}: 404: ${message}`);
  }
});
