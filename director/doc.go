// Package director holds the nouns that every room shares: errors and their kinds, secrets, machines and stamps.
//
// It imports the standard library alone, performs no I/O and carries no wire tags. The documents that administrators
// write live in director/model, which is the one place that knows how they look on the wire.
package director
