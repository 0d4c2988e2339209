// The Cosmos server of @vercel/cosmosdb-server, with connections that are kept open (its own command
// line closes each after one answer, and half the time then goes into TLS handshakes), and with two
// answers mended that this app leans on:
//
// - a point read of an item that is not there is 404, not 500;
// - a transactional batch that fails at any operation leaves nothing of it behind, and its
//   operations take their partition key from the request; patches are among them.
"use strict";

const path = require("node:path");

const NOT_DONE = { statusCode: 424, requestCharge: 0 }; // another operation of the batch failed

const [, , library, port] = process.argv;
const part = (name) => require(path.join(path.dirname(library), name));

mend("handler/read-document", (read) => (account, req, res, params) => {
  try {
    return read(account, req, res, params);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // it looks into the item before it looks for it
    res.statusCode = 404;
    return { code: "NotFound", message: "Entity with the specified id does not exist." };
  }
});

mend("handler/batch-documents", () => async (account, req, res, { dbId, collId }) => {
  const operations = await part("json").default(req);
  const collection = account.database(dbId).collection(collId);
  if (!collection.read()) {
    res.statusCode = 404;
    return {};
  }
  const undo = [];
  const partitionKey = req.headers["x-ms-documentdb-partitionkey"];
  const answers = operations.map((operation) =>
    perform(collection, { partitionKey, ...operation }, undo),
  );
  if (!undo.failed) return answers;
  undo.reverse().forEach((restore) => restore());
  return answers.map((answer) => (answer.statusCode >= 400 ? answer : NOT_DONE));
});

const { createOperation, upsertOperation, replaceOperation, deleteOperation, readOperation } =
  part("handler/_document-operations");
const OPERATIONS = {
  create: createOperation,
  upsert: upsertOperation,
  replace: replaceOperation,
  delete: deleteOperation,
  read: readOperation,
  patch: (collection, operation) =>
    part("handler/_patch-operations").patchOperation(collection, {
      ...operation,
      operations: operation.resourceBody.operations,
    }),
};

// One operation of a batch; once one has failed, the others are 424 and undone.
function perform(collection, operation, undo) {
  const run = OPERATIONS[operation.operationType.toLowerCase()];
  if (undo.failed) return NOT_DONE;
  const id = operation.id ?? operation.resourceBody.id;
  const key = part("utils/get-partition-from-header").parsePartitionKey(operation.partitionKey, id);
  const before = collection.document(id, key).read();
  const { statusCode, body } = run(collection, operation);
  if (statusCode >= 400) {
    undo.failed = true;
    return { statusCode, requestCharge: 0 };
  }
  undo.push(() => {
    if (collection.document(id, key).read()) collection.documents.delete(id, key);
    if (before) collection.documents._set(before);
  });
  return { statusCode, requestCharge: 1, eTag: body?._etag, resourceBody: body };
}

// The routes take a handler when they are loaded, so this must come first.
function mend(name, better) {
  const handler = part(name);
  handler.default = better(handler.default);
}

const { createHttpsServer } = require(library);

const server = createHttpsServer({ keepAlive: true });
server.on("error", (error) => {
  console.error(error.message);
  process.exit(1);
});
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`listening at https://127.0.0.1:${server.address().port}/`);
});
