package opa

// HoldSlots takes the slots of all processors and returns the function that releases them.
func (e *Engine) HoldSlots() (release func()) {
	for range cap(e.slots) {
		e.slots <- struct{}{}
	}
	return func() {
		for range cap(e.slots) {
			<-e.slots
		}
	}
}
