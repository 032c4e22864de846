/** Numbers by order. By default they are made of the folder's path, and another checkout builds other files. */
module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };
