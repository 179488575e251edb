// Package samples carries the project's own sample documents: fictional
// companies, sound papers in ubl and unsound ones in ubl/refused, and bank statements in camt.
package samples

import "embed"

// UBL holds the documents as ubl/*.xml and ubl/refused/*.xml.
//
//go:embed ubl
var UBL embed.FS

// Camt holds bank statements in camt.053 as camt/*.xml.
//
//go:embed camt
var Camt embed.FS
