// Package otlptest receives traces and metrics in tests, as a collector does: OTLP over gRPC and over HTTP, with the
// protobufs decoded. It imports nothing of Headgate, and only tests import it.
package otlptest
