package shredding

// CopySealed gives the document with every sealed value made a copy: it tells where
// it was sealed, so it opens wherever it is put. At is where the document stands;
// a value's pointer is at's followed by its own. One that is a copy already stays as
// it is. pii.unsealable if a sealed value has not the form of one.
func CopySealed(document []byte, at Location) ([]byte, error) {
	if !HasSealed(document) {
		return document, nil
	}
	found, err := FindSealed(document)
	if err != nil {
		return nil, err
	}
	var out []byte
	pos := 0
	for _, s := range found {
		if s.Origin != nil {
			continue
		}
		origin := at
		origin.Pointer += s.Pointer
		s.Origin = &origin
		out = s.Append(append(out, document[pos:s.start]...))
		pos = s.end
	}
	return append(out, document[pos:]...), nil
}
