// The Cosmos server of @vercel/cosmosdb-server, with connections that are kept open: its own
// command line closes each after one answer, and half the time then goes into TLS handshakes.
"use strict";

const [, , library, port] = process.argv;
const { createHttpsServer } = require(library);

const server = createHttpsServer({ keepAlive: true });
server.on("error", (error) => {
  console.error(error.message);
  process.exit(1);
});
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`listening at https://127.0.0.1:${server.address().port}/`);
});
