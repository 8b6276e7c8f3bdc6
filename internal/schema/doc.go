// Package schema holds JSON values against JSON Schemas of 2020-12 and draft-07 that strangers wrote, at a cost that
// is bounded whatever the schema and the value are, and words what does not fit for a model to read.
//
// The package may import the standard library, jsontext and santhosh-tekuri/jsonschema, and nothing else of this
// module.
package schema
