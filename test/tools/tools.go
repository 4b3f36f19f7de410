//go:build tools

// Package tools pins the programs that check the tree.
package tools

import _ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
