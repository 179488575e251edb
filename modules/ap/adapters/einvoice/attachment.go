package einvoice

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/paper"
)

// MaxAttachments is how many attachments of a document are read; further ones stay in its file.
const MaxAttachments = 100

const attachmentsLeftOut = "Some embedded files are left out: there are more than 100 of them or 20 MiB, or they cannot be read. They stay in the file."

const unknownType = "application/octet-stream"

// mediaTypes are the types of papers by the extensions of file names.
var mediaTypes = func() map[string]string {
	types := map[string]string{"jpeg": "image/jpeg", "tiff": "image/tiff"}
	for mediaType, extension := range paper.MediaTypes {
		types[extension] = mediaType
	}
	return types
}()

// embeddings are the files embedded in a PDF file beside the document.
type embeddings struct {
	files   []embedding
	leftOut bool // there are more, or some cannot be read
}

// embedding is an embedded file with the name that the sender gave it.
type embedding struct {
	name  string
	bytes []byte
}

// addEmbeddings adds the files of a PDF file. It reports whether some are left out.
func (d *Document) addEmbeddings(e embeddings, keepBytes bool) (leftOut bool) {
	for _, f := range e.files {
		digest := sha256.Sum256(f.bytes)
		mediaType, known := mediaTypes[strings.ToLower(strings.TrimPrefix(path.Ext(f.name), "."))]
		if !known {
			mediaType = unknownType
		}
		a := Attachment{SHA256: hex.EncodeToString(digest[:]), ContentType: mediaType, Size: int64(len(f.bytes))}
		if keepBytes {
			a.Bytes = f.bytes
		}
		e.leftOut = !d.attach(a) || e.leftOut
	}
	return e.leftOut
}

// attach adds an attachment under a neutral name. It reports whether there was room for it.
func (d *Document) attach(a Attachment) bool {
	if len(d.Attachments) == MaxAttachments {
		return false
	}
	a.FileName = "attachment-" + strconv.Itoa(len(d.Attachments)+1) + "." + paper.MediaTypes[a.ContentType]
	d.Attachments = append(d.Attachments, a)
	return true
}

// readAttachments reads the files embedded in the document. A type that papers do not have is one of
// unknown bytes, so that a page or program is never stored as what a browser runs.
func readAttachments(root *Element, c *checker, d *Document) {
	leftOut := false
	for _, e := range root.All("cac:AdditionalDocumentReference", "cac:Attachment", "cbc:EmbeddedDocumentBinaryObject") {
		switch {
		case e.Content == nil:
			continue
		case !e.Content.Valid:
			c.invalid(e, "BT-125", "An embedded file is base64.")
			continue
		case e.Content.Size == 0:
			continue
		}
		mediaType := strings.ToLower(e.Attribute("mimeCode"))
		if mediaType == "text/xml" {
			mediaType = "application/xml"
		}
		if _, known := paper.MediaTypes[mediaType]; !known {
			mediaType = unknownType
		}
		if !d.attach(Attachment{SHA256: e.Content.SHA256, ContentType: mediaType, Size: e.Content.Size, Bytes: e.Content.Bytes}) && !leftOut {
			leftOut = true
			c.add(e, CodeAttachmentsLeftOut, "BT-125", attachmentsLeftOut).Severity = SeverityWarning
		}
	}
}
