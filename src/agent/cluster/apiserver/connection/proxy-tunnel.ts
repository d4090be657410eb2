/** Connections to a proxy before the tunnel is established, which Node.js does not expose. */
import type { Agent } from "node:https";
import type { Duplex } from "node:stream";

/**
 * Reports each connection to the proxy when it is started. If no tunnel is established, Node.js leaves the connection
 * open, and an error on it would end the process.
 */
export function followTunnels(agent: Agent, onBegun: (connection: Duplex) => void): void {
  const create = agent.createConnection.bind(agent);
  agent.createConnection = (options, callback) => {
    const connection = create(options, callback);
    if (connection) {
      connection.on("error", () => {});
      onBegun(connection);
    }
    return connection;
  };
}
