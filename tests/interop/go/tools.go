//go:build tools

// Package tools requires the client of the interop test cases.
package tools

import _ "google.golang.org/grpc/interop/client"
