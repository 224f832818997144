"""The SDP: Shor's relaxation, solved as a vector network and proved by its dual.

Each module imports from those below it:

    lip_sdp           LipSDP: the l2 bound, times a factor
    method            SDP: the door
    first_layers      what is left of problems that are too large
    over_inputs       the maximum over inputs under l1
    search            ascent and dual in turn, then the proofs
    hyperplanes       vectors rounded to slopes: a lower bound on the POP
    dual              multipliers: fitted, scaled and proved
    quadratic_form    the matrix S of the dual, and a bound on its rounding errors
    block_matrix      symmetric matrices in blocks, and their elimination
    vector_network    the relaxation as a smooth problem over unit vectors
    batches           which problems are solved together; limits on their size
    backend           NumPy, or torch on a device
"""
