// Package csvinvoice reads invoices and credit memos from CSV files by a mapping, which says what
// each column means and how dates and decimals are written. Nothing is guessed. A row is a line
// of a document; rows with the same kind, seller and number are one document.
//
// The documents go the way of those that einvoice reads: the same payloads, with the same care
// for persons, accounts and texts.
package csvinvoice

import "github.com/erpbackbone/backbone/domain/fault"

// Limits of a file and its mapping.
const (
	MaxBytes        = 20 << 20 // size of a file in bytes
	MaxMappingBytes = 64 << 10
	MaxRows         = 100_000
	MaxCell         = 4 << 10 // one cell in bytes
	MaxLines        = 1_000   // rows of one document
	MaxFindings     = 100     // findings listed of one document
)

// Codes of refused files and documents. They are stable.
const (
	CodeMappingInvalid  = "csv.mapping_invalid"  // the mapping is no mapping
	CodeTooLarge        = "csv.too_large"        // over MaxBytes or MaxRows
	CodeEncodingInvalid = "csv.encoding_invalid" // the file is not in the declared encoding
	CodeFormInvalid     = "csv.form_invalid"     // the file is no CSV with the declared separator
	CodeColumnMissing   = "csv.column_missing"   // the header lacks a column of the mapping, or has it twice
	CodeEmpty           = "csv.empty"            // the file has no row below its header
	CodeValueMissing    = "csv.value_missing"    // a cell that is needed is empty
	CodeValueInvalid    = "csv.value_invalid"    // a cell has not the declared form
	CodeValueTooLong    = "csv.value_too_long"   // a cell is longer than its member
	CodeRowsDiffer      = "csv.rows_differ"      // rows of one document differ in a member of the document
	CodeTooManyLines    = "csv.too_many_lines"   // a document has more than MaxLines rows
	CodeTotalMismatch   = "csv.total_mismatch"   // amounts of a document do not add up
)

func refuse(code, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, code, format, args...)
}
