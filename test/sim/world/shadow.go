package world

// holdShadow checks that an operator in shadow mode does not write to nodes or blocks.
func (w *World) holdShadow(v Version) {
	if w.writer.settings.Shadow && v.Kind != KindPool {
		w.violate(10, "%s %s was written by an operator in shadow", v.Kind, v.Key)
	}
}

// leaveShadow replaces operators in shadow mode by others that act.
func (w *World) leaveShadow() {
	for _, o := range w.operators {
		if o.settings.Shadow {
			if o.up {
				o.crash()
			}
			o.settings = w.cfg.Upgraded
		}
	}
}
