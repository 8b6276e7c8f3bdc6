// Package secret holds texts that must not be printed. It imports nothing but the standard library.
package secret
