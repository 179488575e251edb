package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"github.com/erpbackbone/backbone/adapters/client"
)

// keepPaper keeps the file as it was received, for ten years or until the erasure of its vendor after them. It
// reads the file again, so that files that wait take no memory.
func (r *run) keepPaper(p *inputFile) (id string, err error) {
	file, err := os.ReadFile(p.result.File)
	if err != nil {
		return "", &fileError{err}
	}
	if digest := sha256.Sum256(file); hex.EncodeToString(digest[:]) != p.document.SHA256 {
		return "", &fileError{errors.New("it changed while it was imported")}
	}
	params := client.KeepPaperParams{LegalEntity: r.LegalEntity, Subject: "vendor:" + p.result.VendorID, Retention: client.RetentionRegulatory, MediaType: "application/xml"}
	if bytes.HasPrefix(file, []byte("%PDF-")) {
		params.MediaType = "application/pdf"
	}
	kept, err := withRetries(r, func(bool) (client.Paper, error) { return r.papers.KeepPaper(r.requests, params, file) })
	return kept.ID, err
}
