/** Number modules and chunks by order: the default ids depend on the folder, so builds would differ between checkouts. */
module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };
