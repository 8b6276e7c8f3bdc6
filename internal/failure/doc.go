// Package failure holds the closed set of reasons for which Headgate itself fails a request, and the
// error type that carries one through the program.
//
// It owns the words only: which channel a failure is answered in, and with what text, is decided in
// one place, gateway/failure.go. The same reasons name failures in answers, logs, spans and metrics.
//
// It imports the standard library only.
package failure
